// Mistral 7B (Jiang et al. 2023) and the dense text models after it (Nemo, Small): LLaMA without
// any bias, heads whose width need not be hidden / heads, and, in the first version, a window of
// 4,096 tokens in every layer (sliding_window; null in all later ones but Ministral 8B, whose
// layer_types name the layers that have one).
#include <nlohmann/json.hpp>

#include "evaluator/models/text_families/families.h"

namespace evalcar::models::text_families {

Result<decoder::Config> parse_mistral(const nlohmann::json& json, const std::string& place) {
  const ConfigFields fields(json, place);
  EVALCAR_ASSIGN_OR_RETURN(decoder::Config config, decoder::read_config(fields, {.kv_heads = 8}));
  const bool null = json.contains("sliding_window") && !fields.has("sliding_window");
  if (!null) {
    EVALCAR_ASSIGN_OR_RETURN(config.window,
                             fields.integer("sliding_window", 1, std::int64_t{1} << 40, 4096));
    config.windowed.assign(config.windowed.size(), true);
  }
  EVALCAR_RETURN_IF_ERROR(decoder::read_layer_types(fields, config));
  return config;
}

}  // namespace evalcar::models::text_families
