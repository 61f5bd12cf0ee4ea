#include "evaluator/models/vit/config.h"

#include <string>

#include "evaluator/models/rotary_settings.h"

namespace evalcar::models::vit {

Result<std::int64_t> read_heads(const ConfigFields& fields) {
  constexpr const char* kAlias = "num_attention_heads";
  const char* const key = fields.has("num_heads") ? "num_heads" : kAlias;
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t heads, fields.integer(key, 1, kMostHeads, 16));
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t alias, fields.integer(kAlias, 1, kMostHeads, heads));
  if (alias != heads)
    return fields.unexpected(kAlias, "expected num_heads = " + std::to_string(heads));
  return heads;
}

Result<double> read_rope_theta(const ConfigFields& fields) {
  EVALCAR_ASSIGN_OR_RETURN(const RotarySettings rope, read_rotary(fields, 10000.0, "axial"));
  if (rope.scaling != RotaryScaling::kNone)
    return fields.unsupported("a rope type that scales (known: default, axial)");
  return rope.theta;
}

Status read_config(const ConfigFields& fields, Config& config) {
  EVALCAR_ASSIGN_OR_RETURN(config.depth, fields.integer("depth", 1, kMostLayers, config.depth));
  EVALCAR_ASSIGN_OR_RETURN(config.heads, read_heads(fields));
  // "in_chans" on the hub, where transformers itself ignores it and takes its default.
  EVALCAR_ASSIGN_OR_RETURN(config.channels, fields.integer("in_channels", 1, 16, 3));
  EVALCAR_ASSIGN_OR_RETURN(config.patch, fields.integer("patch_size", 1, 256, config.patch));
  EVALCAR_ASSIGN_OR_RETURN(config.temporal_patch, fields.integer("temporal_patch_size", 1, 16, 2));
  EVALCAR_ASSIGN_OR_RETURN(config.merge, fields.integer("spatial_merge_size", 1, 16, 2));
  EVALCAR_ASSIGN_OR_RETURN(config.rope_theta, read_rope_theta(fields));
  return {};
}

Status check_config(const ConfigFields& fields, const Config& config, std::int64_t text_hidden) {
  EVALCAR_RETURN_IF_ERROR(
      fields.require_multiple("the tower's width must be divisible by four times the num_heads",
                              config.hidden, 4 * config.heads));
  if (config.out_hidden != text_hidden)
    return make_error(ErrorCode::kCorruption, fields.place() + ": the tower's tokens have " +
                                                  std::to_string(config.out_hidden) +
                                                  " numbers, the text model's hidden_size is " +
                                                  std::to_string(text_hidden));
  for (const std::int64_t block : config.deepstack) {
    if (block >= config.depth)
      return fields.unexpected("deepstack_visual_indexes", "expected numbers below depth");
  }
  return {};
}

}  // namespace evalcar::models::vit
