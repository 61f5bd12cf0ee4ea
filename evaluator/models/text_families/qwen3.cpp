// Qwen3, dense (Yang et al. 2025): Qwen2 without its biases, and with an RMSNorm over each head of
// queries and keys before they are turned. head_dim is a number of its own.
#include "evaluator/models/text_families/families.h"

namespace evalcar::models::text_families {

Result<decoder::Config> parse_qwen3(const nlohmann::json& json, const std::string& place) {
  const ConfigFields fields(json, place);
  EVALCAR_ASSIGN_OR_RETURN(decoder::Config config,
                           decoder::read_config(fields, {.kv_heads = 32, .head_dim = 128}));
  config.qk_norm = true;
  EVALCAR_ASSIGN_OR_RETURN(config.qkv_bias, fields.boolean("attention_bias", false));
  config.output_bias = config.qkv_bias;
  EVALCAR_RETURN_IF_ERROR(decoder::read_layer_windows(fields, /*first_windowed=*/28, config));
  return config;
}

}  // namespace evalcar::models::text_families
