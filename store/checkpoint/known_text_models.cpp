#include "store/checkpoint/known_text_models.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string_view>

#include "store/checkpoint/folder.h"
#include "store/checkpoint/json_scan.h"
#include "store/checkpoint/tie_config.h"

namespace evalcar::checkpoint {
namespace {

/// Of a `model_type`.
struct Family {
  std::string_view model_type;
  bool has_experts = false;
  bool has_query_biases = false;  ///< whatever the configuration says
  bool may_have_biases = false;   ///< where it says so (attention_bias)
  bool has_query_norms = false;
};

/// Text models, alone or as a part.
constexpr std::array<Family, 9> kFamilies = {{
    {.model_type = "llama", .may_have_biases = true},
    {.model_type = "mistral"},
    {.model_type = "qwen2", .has_query_biases = true},
    {.model_type = "qwen2_vl_text", .has_query_biases = true},
    {.model_type = "qwen2_5_vl_text", .has_query_biases = true},
    {.model_type = "qwen3", .may_have_biases = true, .has_query_norms = true},
    {.model_type = "qwen3_vl_text", .may_have_biases = true, .has_query_norms = true},
    {.model_type = "qwen3_moe",
     .has_experts = true,
     .may_have_biases = true,
     .has_query_norms = true},
    {.model_type = "qwen3_vl_moe_text",
     .has_experts = true,
     .may_have_biases = true,
     .has_query_norms = true},
}};
/// Of models whose configuration of text lay at the top before transformers 4.52.
constexpr std::array<Family, 2> kFlat = {{{.model_type = "qwen2_vl", .has_query_biases = true},
                                          {.model_type = "qwen2_5_vl", .has_query_biases = true}}};
/// Whole models with Qwen's tower, `visual`.
constexpr std::array<std::string_view, 4> kTowers = {"qwen2_vl", "qwen2_5_vl", "qwen3_vl",
                                                     "qwen3_vl_moe"};
constexpr std::array<std::string_view, 6> kNumbers = {
    "num_hidden_layers", "hidden_size", "vocab_size", "num_experts", "num_local_experts", "depth"};

template <std::size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

template <std::size_t N>
const Family* find_family(std::string_view model_type, const std::array<Family, N>& families) {
  const auto found = std::find_if(families.begin(), families.end(), [&](const Family& family) {
    return family.model_type == model_type;
  });
  return found == families.end() ? nullptr : &*found;
}

/// The few keys of a configuration that are asked for; a file of any form costs no more than its
/// own text.
class ConfigScan final : public JsonVisitor {
 public:
  std::optional<KnownTextModel> model() const {
    const Part& text = text_.is_there ? text_ : top_;
    if (!top_.is_there || top_.quantized || text.quantized) return std::nullopt;
    const Family* family = find_family(text.model_type, kFamilies);
    if (family == nullptr && !text_.is_there) family = find_family(text.model_type, kFlat);
    if (family == nullptr) return std::nullopt;
    // Of the text model's own configuration, else of the one around it.
    const auto number = [&](std::string_view key) {
      const auto own = text.numbers.find(key);
      if (own != text.numbers.end()) return std::optional(own->second);
      const auto around = top_.numbers.find(key);
      return around == top_.numbers.end() ? std::nullopt : std::optional(around->second);
    };
    KnownTextModel model;
    model.layers = number("num_hidden_layers");
    model.hidden = number("hidden_size");
    model.vocabulary = number("vocab_size");
    model.has_experts = family->has_experts;
    model.experts = number("num_experts");
    if (!model.experts) model.experts = number("num_local_experts");
    model.has_output_biases = family->may_have_biases && text.has_biases;
    model.has_query_biases = family->has_query_biases || model.has_output_biases;
    model.has_query_norms = family->has_query_norms;
    model.has_own_head =
        generates_ && (top_.is_untied || text.is_untied) && !top_.is_tied && !text.is_tied;
    if (is_one_of(top_.model_type, kTowers)) {
      const auto blocks = tower_.numbers.find("depth");
      if (blocks != tower_.numbers.end()) model.tower_blocks = blocks->second;
    }
    return model;
  }

 private:
  struct Part {
    bool is_there = false;
    bool quantized = false;
    bool has_biases = false;
    bool is_tied = false;    ///< tie_word_embeddings is true
    bool is_untied = false;  ///< it is false
    std::string model_type;
    std::map<std::string, std::uint64_t, std::less<>> numbers;
  };

  Part* part_around(const JsonPath& path) {
    if (path.size() == 1) return &top_;
    if (path.size() != 2) return nullptr;
    if (path.front() == "text_config") return &text_;
    return path.front() == "vision_config" ? &tower_ : nullptr;
  }
  std::string scalar(const JsonPath& path, const JsonScalar& value) override {
    if (path.size() == 2 && path.front() == "architectures" &&
        value.kind == JsonScalar::Kind::kString) {
      generates_ |=
          value.text.ends_with("ForCausalLM") || value.text.ends_with("ForConditionalGeneration");
    }
    Part* const part = part_around(path);
    if (part == nullptr) return {};
    const std::string& key = path.back();
    part->quantized |= key == "quantization_config";
    if (key == "model_type" && value.kind == JsonScalar::Kind::kString)
      part->model_type = value.text;
    if (value.kind == JsonScalar::Kind::kUnsigned && is_one_of(key, kNumbers))
      part->numbers.emplace(key, value.number);
    if (value.kind != JsonScalar::Kind::kBool) return {};
    part->has_biases |= key == "attention_bias" && value.boolean;
    if (key == kTieKey) (value.boolean ? part->is_tied : part->is_untied) = true;
    return {};
  }
  std::string open(const JsonPath& path, bool is_array) override {
    if (path.empty()) top_.is_there = !is_array;
    if (path.size() == 1 && path.front() == "text_config") text_.is_there = !is_array;
    if (Part* const part = part_around(path))
      part->quantized |= path.back() == "quantization_config";
    return {};
  }
  std::string close(const JsonPath&) override { return {}; }

  Part top_;
  Part text_;
  Part tower_;
  bool generates_ = false;
};

}  // namespace

std::optional<KnownTextModel> read_known_text_model(const FileSystem& files,
                                                    const std::string& path) {
  auto text = read_file(files, path, kMaxConfigBytes);
  if (!text.has_value()) return std::nullopt;
  replace_non_finite(*text);
  ConfigScan scan;
  if (!scan_json(*text, path, kMaxConfigDepth, scan).has_value()) return std::nullopt;
  return scan.model();
}

}  // namespace evalcar::checkpoint
