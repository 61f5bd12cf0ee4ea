#include "evaluator/models/qwen2_5_vl/config.h"

#include <nlohmann/json.hpp>

#include "evaluator/models/config_fields.h"
#include "evaluator/models/vit/config.h"

namespace evalcar::models::qwen2_5_vl {
namespace {

Result<VisionConfig> read_vision(const ConfigFields& fields, const decoder::Config& text) {
  VisionConfig vision;
  EVALCAR_ASSIGN_OR_RETURN(vision.depth, fields.integer("depth", 1, kMostLayers, 32));
  EVALCAR_ASSIGN_OR_RETURN(vision.hidden, fields.integer("hidden_size", 4, kMostWidth, 3584));
  EVALCAR_ASSIGN_OR_RETURN(vision.intermediate,
                           fields.integer("intermediate_size", 1, kMostWidth * 8, 3420));
  EVALCAR_ASSIGN_OR_RETURN(vision.heads, vit::read_heads(fields));
  // "in_chans" on the hub, where transformers itself ignores it and takes its default.
  EVALCAR_ASSIGN_OR_RETURN(vision.channels, fields.integer("in_channels", 1, 16, 3));
  EVALCAR_ASSIGN_OR_RETURN(vision.patch, fields.integer("patch_size", 1, 256, 14));
  EVALCAR_ASSIGN_OR_RETURN(vision.temporal_patch, fields.integer("temporal_patch_size", 1, 16, 2));
  EVALCAR_ASSIGN_OR_RETURN(vision.merge, fields.integer("spatial_merge_size", 1, 16, 2));
  EVALCAR_ASSIGN_OR_RETURN(vision.window, fields.integer("window_size", 1, 1 << 16, 112));
  EVALCAR_ASSIGN_OR_RETURN(vision.out_hidden,
                           fields.integer("out_hidden_size", 1, kMostWidth, 3584));
  EVALCAR_ASSIGN_OR_RETURN(const auto full,
                           fields.integers("fullatt_block_indexes", 0, kMostLayers,
                                           static_cast<std::size_t>(kMostLayers), {7, 15, 23, 31}));
  vision.full_attention.resize(static_cast<std::size_t>(vision.depth));
  for (const std::int64_t block : full) {
    if (block < vision.depth) vision.full_attention[static_cast<std::size_t>(block)] = true;
  }
  EVALCAR_ASSIGN_OR_RETURN(vision.rope_theta, vit::read_rope_theta(fields));
  EVALCAR_RETURN_IF_ERROR(fields.require("hidden_act", "silu"));
  EVALCAR_RETURN_IF_ERROR(
      fields.require_multiple("hidden_size must be divisible by four times the num_heads",
                              vision.hidden, 4 * vision.heads));
  if (vision.window_tokens() < 1)
    return make_error(ErrorCode::kCorruption,
                      fields.place() + ": window_size is smaller than one merged token");
  if (vision.out_hidden != text.hidden)
    return make_error(ErrorCode::kCorruption,
                      fields.place() + ": out_hidden_size " + std::to_string(vision.out_hidden) +
                          " is not the text model's hidden_size " + std::to_string(text.hidden));
  return vision;
}

}  // namespace

Result<Config> parse_config(const nlohmann::json& json, const std::string& place) {
  return qwen_vl::read_config(json, place, &qwen_vl::read_qwen2_text, &read_vision);
}

}  // namespace evalcar::models::qwen2_5_vl
