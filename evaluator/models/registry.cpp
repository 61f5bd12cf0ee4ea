#include "evaluator/models/registry.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "evaluator/models/config_fields.h"
#include "evaluator/models/decoder/text_model.h"
#include "evaluator/models/llava_onevision/model.h"
#include "evaluator/models/qwen2_5_vl/model.h"
#include "evaluator/models/qwen2_vl/model.h"
#include "evaluator/models/qwen3_vl/model.h"
#include "evaluator/models/text_families/families.h"
#include "store/base/hash.h"

namespace evalcar::models {
namespace {

using Parse = Result<decoder::Config> (*)(const nlohmann::json&, const std::string&);
using Make = Result<std::unique_ptr<Model>> (*)(const nlohmann::json&, const std::string&);

struct Family {
  std::string_view model_type;
  std::string_view architecture;
  Parse text = nullptr;  ///< of a text model: its numbers are all there is to it
  Make model = nullptr;  ///< of any other

  Result<std::unique_ptr<Model>> make(const nlohmann::json& config,
                                      const std::string& place) const {
    if (model != nullptr) return model(config, place);
    EVALCAR_ASSIGN_OR_RETURN(decoder::Config numbers, text(config, place));
    return decoder::make_text_model(std::string(model_type), std::move(numbers));
  }
};

// A table, not static registration: what is in the program can be read here.
constexpr Family kFamilies[] = {
    {"qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", nullptr, &qwen2_5_vl::make_model},
    {"qwen2_vl", "Qwen2VLForConditionalGeneration", nullptr, &qwen2_vl::make_model},
    {"qwen3_vl", "Qwen3VLForConditionalGeneration", nullptr, &qwen3_vl::make_model},
    {"llava_onevision", "LlavaOnevisionForConditionalGeneration", nullptr,
     &llava_onevision::make_model},
    {"llama", "LlamaForCausalLM", &text_families::parse_llama},
    {"mistral", "MistralForCausalLM", &text_families::parse_mistral},
    // What transformers 5 makes of a mistral that has layer_types, and saves it as.
    {"ministral", "MinistralForCausalLM", &text_families::parse_mistral},
    {"qwen2", "Qwen2ForCausalLM", &text_families::parse_qwen2},
    {"qwen3", "Qwen3ForCausalLM", &text_families::parse_qwen3},
};

// The architecture's class decides where it is given; files without one are judged by model_type
// alone.
bool matches(const Family& family, const nlohmann::json& config) {
  const auto classes = config.find("architectures");
  if (classes != config.end() && classes->is_array() && !classes->empty()) {
    for (const auto& name : *classes) {
      if (name == family.architecture) return true;
    }
    return false;
  }
  const auto type = config.find("model_type");
  return type != config.end() && *type == family.model_type;
}

// Tensors of Llama and Mistral have the same names: where the two keys disagree nothing else tells.
Status check_type(const Family& family, const ConfigFields& root) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string type,
                           root.text("model_type", std::string(family.model_type)));
  const auto* const named = std::ranges::find(kFamilies, type, &Family::model_type);
  const bool same =
      named != std::end(kFamilies) && named->text == family.text && named->model == family.model;
  if (same) return {};
  return root.unsupported("architectures names " + std::string(family.architecture) +
                          ", whose model_type is \"" + std::string(family.model_type) +
                          "\", and model_type is \"" + type.substr(0, 80) +
                          "\"; expected both of one model");
}

// What transformers does by a key of any family, and this program does not.
Status refuse_what_is_not_done(const ConfigFields& fields) {
  EVALCAR_ASSIGN_OR_RETURN(const auto quantization, fields.object("quantization_config"));
  if (quantization && !quantization->json().empty())
    return fields.unsupported(
        "quantization_config: quantized models are not evaluated; expected no such key. Where a "
        "trainer has left it behind beside whole weights, evaluate a copy of the configuration "
        "without it");
  EVALCAR_ASSIGN_OR_RETURN(const bool causal, fields.boolean("is_causal", true));
  if (!causal)
    return fields.unsupported(
        "is_causal is false; expected a model whose tokens see those before them alone");
  return {};
}

Status check_whole(const Family& family, const ConfigFields& root) {
  EVALCAR_RETURN_IF_ERROR(check_type(family, root));
  EVALCAR_RETURN_IF_ERROR(refuse_what_is_not_done(root));
  EVALCAR_ASSIGN_OR_RETURN(const auto text, root.object("text_config"));
  return text ? refuse_what_is_not_done(*text) : Status();
}

// Keys in order, without white space; what is no UTF-8 stands as it is.
std::string canonical_text(const nlohmann::json& config) {
  return config.dump(-1, ' ', false, nlohmann::json::error_handler_t::ignore);
}

// As merge writes it: of the whole model, and of its part that reads text.
void untie(nlohmann::json& config) {
  constexpr const char* kTie = "tie_word_embeddings";
  config[kTie] = false;
  const auto text = config.find("text_config");
  if (text != config.end() && text->is_object()) (*text)[kTie] = false;
}

std::string seen(const nlohmann::json& config) {
  std::string text = "no model_type";
  if (config.contains("model_type") && config["model_type"].is_string())
    text = "model_type \"" + config["model_type"].get<std::string>().substr(0, 80) + "\"";
  if (config.contains("architectures") && config["architectures"].is_array() &&
      !config["architectures"].empty() && config["architectures"][0].is_string())
    text +=
        ", architecture \"" + config["architectures"][0].get<std::string>().substr(0, 80) + "\"";
  return text;
}

}  // namespace

Result<std::unique_ptr<Model>> make_model(const FileSystem& files, const std::string& dir,
                                          bool gives_up_tie) {
  EVALCAR_ASSIGN_OR_RETURN(ConfiguredModel made, make_configured_model(files, dir, gives_up_tie));
  return std::move(made.model);
}

Result<ConfiguredModel> make_configured_model(const FileSystem& files, const std::string& dir,
                                              bool gives_up_tie) {
  EVALCAR_ASSIGN_OR_RETURN(nlohmann::json config, read_config(files, dir));
  const std::string sha256 = sha256_hex(canonical_text(config));
  if (gives_up_tie) untie(config);
  const std::string place = join_path(dir, "config.json");
  std::string known;
  for (const Family& family : kFamilies) {
    if (matches(family, config)) {
      EVALCAR_RETURN_IF_ERROR(check_whole(family, ConfigFields(config, place)));
      EVALCAR_ASSIGN_OR_RETURN(auto model, family.make(config, place));
      return ConfiguredModel{std::move(model), sha256};
    }
    known += (known.empty() ? "" : ", ") + std::string(family.model_type) + " (" +
             std::string(family.architecture) + ")";
  }
  return make_error(ErrorCode::kUnsupported,
                    place + ": " + seen(config) + " is not known; known are: " + known);
}

std::vector<KnownModel> known_models() {
  std::vector<KnownModel> known;
  for (const Family& family : kFamilies)
    known.push_back({std::string(family.model_type), std::string(family.architecture)});
  return known;
}

}  // namespace evalcar::models
