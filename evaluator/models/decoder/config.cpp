#include "evaluator/models/decoder/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

namespace evalcar::models::decoder {
namespace {

constexpr std::int64_t kMostHeadDim = 4096;
constexpr std::int64_t kMostWindow = std::int64_t{1} << 40;

// A number of null is one for each head; a number that is not there is the family's.
Result<std::int64_t> read_kv_heads(const ConfigFields& fields, const Defaults& defaults,
                                   std::int64_t heads) {
  constexpr const char* kKey = "num_key_value_heads";
  const bool null = fields.json().contains(kKey) && !fields.has(kKey);
  return fields.integer(kKey, 1, kMostHeads, null ? heads : defaults.kv_heads.value_or(heads));
}

Result<std::int64_t> read_head_dim(const ConfigFields& fields, const Defaults& defaults,
                                   const Config& config) {
  if (fields.has("head_dim") || defaults.head_dim)
    return fields.integer("head_dim", 2, kMostHeadDim, defaults.head_dim);
  EVALCAR_RETURN_IF_ERROR(fields.require_multiple(
      "hidden_size must be divisible by the num_attention_heads", config.hidden, config.heads));
  return config.hidden / config.heads;
}

// true for a layer whose tokens see a window only.
Result<std::vector<bool>> windowed_layers(const ConfigFields& fields, std::int64_t layers) {
  const nlohmann::json& types = fields.json().at("layer_types");
  if (!types.is_array() || types.size() != static_cast<std::size_t>(layers))
    return fields.unexpected("layer_types",
                             "expected a list of num_hidden_layers = " + std::to_string(layers));
  std::vector<bool> windowed;
  for (const auto& type : types) {
    if (type != "full_attention" && type != "sliding_attention")
      return fields.unsupported(
          "layer_types names " +
          (type.is_string() ? "\"" + type.get<std::string>().substr(0, 60) + "\"" : "no text") +
          " (known: full_attention, sliding_attention)");
    windowed.push_back(type == "sliding_attention");
  }
  return windowed;
}

}  // namespace

Result<Config> read_config(const ConfigFields& fields, const Defaults& defaults) {
  Config config;
  EVALCAR_ASSIGN_OR_RETURN(config.vocab, fields.integer("vocab_size", 1, kMostVocabulary));
  EVALCAR_ASSIGN_OR_RETURN(config.hidden, fields.integer("hidden_size", 2, kMostWidth));
  EVALCAR_ASSIGN_OR_RETURN(config.intermediate,
                           fields.integer("intermediate_size", 1, kMostWidth * 8));
  EVALCAR_ASSIGN_OR_RETURN(config.layers, fields.integer("num_hidden_layers", 1, kMostLayers));
  EVALCAR_ASSIGN_OR_RETURN(config.heads, fields.integer("num_attention_heads", 1, kMostHeads));
  EVALCAR_ASSIGN_OR_RETURN(config.kv_heads, read_kv_heads(fields, defaults, config.heads));
  EVALCAR_ASSIGN_OR_RETURN(config.head_dim, read_head_dim(fields, defaults, config));
  EVALCAR_ASSIGN_OR_RETURN(config.rms_norm_eps,
                           fields.number("rms_norm_eps", 0.0, 1.0, defaults.rms_norm_eps));
  EVALCAR_RETURN_IF_ERROR(
      fields.require_multiple("num_attention_heads must be divisible by num_key_value_heads",
                              config.heads, config.kv_heads));
  EVALCAR_RETURN_IF_ERROR(
      fields.require_multiple("the head dimension must be even", config.head_dim, 2));
  EVALCAR_RETURN_IF_ERROR(fields.require("hidden_act", "silu"));
  if (fields.has("attention_chunk_size"))
    return fields.unsupported("attention_chunk_size: attention in chunks is not computed");
  EVALCAR_ASSIGN_OR_RETURN(config.rope,
                           read_rotary(fields, defaults.rope_theta, defaults.plain_rope));
  EVALCAR_ASSIGN_OR_RETURN(config.tied_head, fields.boolean("tie_word_embeddings", false));
  config.position_axis.assign(static_cast<std::size_t>(config.head_dim / 2), 0);
  config.windowed.assign(static_cast<std::size_t>(config.layers), false);
  return config;
}

Status refuse_windows(const ConfigFields& fields, const Config& config) {
  bool any = false;
  if (fields.has("layer_types")) {
    EVALCAR_ASSIGN_OR_RETURN(const auto windowed, windowed_layers(fields, config.layers));
    any = std::ranges::find(windowed, true) != windowed.end();
  } else if (fields.has("sliding_window")) {
    EVALCAR_ASSIGN_OR_RETURN(const auto window, fields.integer("sliding_window", 0, kMostWindow));
    EVALCAR_ASSIGN_OR_RETURN(const auto positions, fields.integer("max_position_embeddings", 1,
                                                                  kMostWindow, kMostWindow));
    any = window < positions;
  }
  if (!any) return {};
  return fields.unsupported(
      "sliding_window or layer_types give layers a window, and those of this family have none: "
      "transformers would read the prompt without it and go on with it; expected no such keys");
}

Status read_layer_types(const ConfigFields& fields, Config& config) {
  if (fields.has("layer_types")) {
    EVALCAR_ASSIGN_OR_RETURN(config.windowed, windowed_layers(fields, config.layers));
  }
  if (config.window == 0 && std::ranges::find(config.windowed, true) != config.windowed.end())
    return fields.unexpected(
        "sliding_window",
        "expected a number (and use_sliding_window to be true, where the family "
        "has that key): layer_types names sliding_attention");
  return {};
}

Status read_layer_windows(const ConfigFields& fields, std::int64_t first_windowed, Config& config) {
  EVALCAR_ASSIGN_OR_RETURN(const bool use, fields.boolean("use_sliding_window", false));
  if (use && (fields.has("sliding_window") || !fields.json().contains("sliding_window"))) {
    EVALCAR_ASSIGN_OR_RETURN(config.window, fields.integer("sliding_window", 1, kMostWindow, 4096));
  }
  if (config.window > 0 && !fields.has("layer_types")) {
    EVALCAR_ASSIGN_OR_RETURN(const std::int64_t first,
                             fields.integer("max_window_layers", 0, kMostLayers, first_windowed));
    for (std::int64_t i = first; i < config.layers; ++i)
      config.windowed[static_cast<std::size_t>(i)] = true;
  }
  return read_layer_types(fields, config);
}

}  // namespace evalcar::models::decoder
