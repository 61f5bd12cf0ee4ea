#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "agent/cli/exit_code.h"
#include "agent/cli/small_commands.h"
#include "agent/publish/table.h"
#include "store/checkpoint/layout.h"

namespace evalcar::cli {
namespace {

/// A copy of the evaluator's table (evaluator/models/registry.cpp), which cannot be linked here;
/// tests/e2e/test_bad_input.py compares the two.
struct Model {
  std::string_view model_type;
  std::string_view architecture;
  std::string_view modalities;
};
constexpr std::array<Model, 9> kModels = {
    {{"qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", "text, image"},
     {"qwen2_vl", "Qwen2VLForConditionalGeneration", "text, image"},
     {"qwen3_vl", "Qwen3VLForConditionalGeneration", "text, image"},
     {"llava_onevision", "LlavaOnevisionForConditionalGeneration", "text, image"},
     {"llama", "LlamaForCausalLM", "text"},
     {"mistral", "MistralForCausalLM", "text"},
     {"ministral", "MinistralForCausalLM", "text"},
     {"qwen2", "Qwen2ForCausalLM", "text"},
     {"qwen3", "Qwen3ForCausalLM", "text"}}};

/// Those that trainers write: all but the average, which is ours and comes last.
std::vector<std::string_view> layouts() {
  std::vector<std::string_view> names;
  for (int i = 0; i < static_cast<int>(checkpoint::Layout::kAveraged); ++i) {
    names.push_back(checkpoint::layout_name(static_cast<checkpoint::Layout>(i)));
  }
  return names;
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Model& model : kModels) names.emplace_back(model.model_type);
  std::sort(names.begin(), names.end());
  return names;
}

int run_models(bool json, std::ostream& out) {
  if (json) {
    nlohmann::ordered_json document = {{"models", nlohmann::ordered_json::array()},
                                       {"layouts", layouts()}};
    for (const Model& model : kModels) {
      document["models"].push_back({{"model_type", model.model_type},
                                    {"architecture", model.architecture},
                                    {"modalities", model.modalities}});
    }
    out << document.dump(2) << '\n';
    return kExitDone;
  }
  std::vector<std::vector<std::string>> rows;
  for (const Model& model : kModels) {
    rows.push_back({std::string(model.model_type), std::string(model.architecture),
                    std::string(model.modalities)});
  }
  out << publish::markdown_table({"model_type", "Architecture", "Modalities"}, rows,
                                 {false, false, false})
      << "\nLayouts of checkpoints:";
  for (const std::string_view layout : layouts()) out << ' ' << layout;
  out << '\n';
  return kExitDone;
}

}  // namespace evalcar::cli
