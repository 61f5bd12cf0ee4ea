// Qwen2 and Qwen2.5 (Yang et al. 2024): biases on queries, keys and values, and on nothing else.
// use_sliding_window, which no published checkpoint sets, gives the layers from max_window_layers
// on a window.
#include "evaluator/models/text_families/families.h"

namespace evalcar::models::text_families {

Result<decoder::Config> parse_qwen2(const nlohmann::json& json, const std::string& place) {
  const ConfigFields fields(json, place);
  EVALCAR_ASSIGN_OR_RETURN(decoder::Config config, decoder::read_config(fields, {.kv_heads = 32}));
  config.qkv_bias = true;
  EVALCAR_RETURN_IF_ERROR(decoder::read_layer_windows(fields, /*first_windowed=*/28, config));
  return config;
}

}  // namespace evalcar::models::text_families
