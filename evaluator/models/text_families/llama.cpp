// Llama 2 and 3 (Touvron et al. 2023; Grattafiori et al. 2024), and what is built like them
// (TinyLlama, SmolLM, Yi), where their tokenizer is a byte-level BPE (Llama 3, SmolLM): no biases
// unless attention_bias (all four products of the attention) or mlp_bias say so. Llama 3.1 and
// later slow their long wavelengths down (rope type llama3); older long-context versions all of
// them alike (linear).
#include "evaluator/models/text_families/families.h"

namespace evalcar::models::text_families {

Result<decoder::Config> parse_llama(const nlohmann::json& json, const std::string& place) {
  const ConfigFields fields(json, place);
  EVALCAR_ASSIGN_OR_RETURN(decoder::Config config, decoder::read_config(fields));
  EVALCAR_RETURN_IF_ERROR(decoder::refuse_windows(fields, config));
  EVALCAR_ASSIGN_OR_RETURN(config.qkv_bias, fields.boolean("attention_bias", false));
  config.output_bias = config.qkv_bias;
  EVALCAR_ASSIGN_OR_RETURN(config.mlp_bias, fields.boolean("mlp_bias", false));
  return config;
}

}  // namespace evalcar::models::text_families
