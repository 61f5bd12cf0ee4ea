#include "store/checkpoint/known_text_models.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "store/checkpoint/folder.h"
#include "store/checkpoint/json_scan.h"
#include "store/checkpoint/model_config.h"

namespace evalcar::checkpoint {
namespace {

/// Of a `model_type`.
struct TextFamily {
  std::string_view model_type;
  bool has_experts = false;
  bool has_query_biases = false;  ///< whatever the configuration says
  bool may_have_biases = false;   ///< where it says so (attention_bias)
  bool has_query_norms = false;
};

/// Text models, alone or as a part.
constexpr std::array<TextFamily, 10> kTextFamilies = {{
    {.model_type = "llama", .may_have_biases = true},
    {.model_type = "mistral"},
    {.model_type = "ministral"},
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
constexpr std::array<TextFamily, 2> kFlat = {
    {{.model_type = "qwen2_vl", .has_query_biases = true},
     {.model_type = "qwen2_5_vl", .has_query_biases = true}}};
/// Whole models with Qwen's tower, `visual`.
constexpr std::array<std::string_view, 4> kTowers = {"qwen2_vl", "qwen2_5_vl", "qwen3_vl",
                                                     "qwen3_vl_moe"};

template <std::size_t N>
const TextFamily* find_text_family(std::string_view model_type,
                                   const std::array<TextFamily, N>& families) {
  const auto found = std::find_if(families.begin(), families.end(), [&](const TextFamily& family) {
    return family.model_type == model_type;
  });
  return found == families.end() ? nullptr : &*found;
}

std::optional<KnownTextModel> known_model(const ModelConfig& config) {
  const ConfigPart& whole = config.whole;
  const ConfigPart& text = config.text.is_there ? config.text : whole;
  if (!whole.is_there || whole.is_quantized || text.is_quantized) return std::nullopt;
  const TextFamily* family = find_text_family(text.model_type, kTextFamilies);
  if (family == nullptr && !config.text.is_there) family = find_text_family(text.model_type, kFlat);
  if (family == nullptr) return std::nullopt;
  // Of the text model's own configuration, else of the one around it.
  const auto number = [&](std::string_view key) {
    const auto own = text.number(key);
    return own ? own : whole.number(key);
  };
  KnownTextModel model;
  model.layers = number("num_hidden_layers");
  model.hidden = number("hidden_size");
  model.vocabulary = number("vocab_size");
  model.has_experts = family->has_experts;
  model.experts = number("num_experts");
  if (!model.experts) model.experts = number("num_local_experts");
  model.has_output_biases = family->may_have_biases && text.has_biases.value_or(false);
  model.has_query_biases = family->has_query_biases || model.has_output_biases;
  model.has_query_norms = family->has_query_norms;
  const bool is_tied = whole.is_tied.value_or(false) || text.is_tied.value_or(false);
  model.has_own_head = config.generates && (whole.is_tied || text.is_tied) && !is_tied;
  if (std::ranges::find(kTowers, whole.model_type) != kTowers.end()) {
    model.tower_blocks = config.tower.number("depth");
  }
  return model;
}

}  // namespace

std::optional<KnownTextModel> read_known_text_model(const FileSystem& files,
                                                    const std::string& path) {
  auto text = read_file(files, path, kMaxConfigBytes);
  if (!text.has_value()) return std::nullopt;
  replace_non_finite(*text);
  const auto config = parse_model_config(*text, path);
  return config.has_value() ? known_model(*config) : std::nullopt;
}

}  // namespace evalcar::checkpoint
