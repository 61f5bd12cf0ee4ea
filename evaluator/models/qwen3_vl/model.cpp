// Qwen3 with three-axis positions in turn, under a ViT with a learned grid of positions; DeepStack
// adds what three of the tower's blocks see to the decoder's first three layers.
#include "evaluator/models/qwen3_vl/model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "evaluator/models/qwen_vl.h"
#include "evaluator/models/qwen_vl_model.h"
#include "evaluator/models/vit/layout.h"
#include "evaluator/models/vit/tower.h"

namespace evalcar::models::qwen3_vl {
namespace {

Result<decoder::Config> read_text(const ConfigFields& fields) {
  EVALCAR_ASSIGN_OR_RETURN(
      decoder::Config text,
      decoder::read_config(fields, {.kv_heads = 32, .head_dim = 128, .rope_theta = 500000.0}));
  EVALCAR_RETURN_IF_ERROR(decoder::refuse_windows(fields, text));
  text.qk_norm = true;
  EVALCAR_ASSIGN_OR_RETURN(text.qkv_bias, fields.boolean("attention_bias", false));
  text.output_bias = text.qkv_bias;
  EVALCAR_RETURN_IF_ERROR(
      qwen_vl::read_sections(fields, qwen_vl::Sections::kInterleaved, {24, 20, 20}, text));
  return text;
}

Result<vit::Config> read_vision(const ConfigFields& fields, const decoder::Config& text) {
  vit::Config vision{.depth = 27,
                     .patch = 16,
                     .activation = vit::Activation::kGeluTanh,
                     .names = vit::kQwen3Names,
                     .patch_bias = true};
  EVALCAR_RETURN_IF_ERROR(vit::read_config(fields, vision));
  EVALCAR_ASSIGN_OR_RETURN(vision.hidden, fields.integer("hidden_size", 4, kMostWidth, 1152));
  EVALCAR_ASSIGN_OR_RETURN(vision.intermediate,
                           fields.integer("intermediate_size", 1, kMostWidth * 8, 4304));
  EVALCAR_ASSIGN_OR_RETURN(vision.out_hidden,
                           fields.integer("out_hidden_size", 1, kMostWidth, 3584));
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t positions,
                           fields.integer("num_position_embeddings", 1, 1 << 24, 2304));
  vision.grid_side = std::llround(std::sqrt(static_cast<double>(positions)));
  if (vision.grid_side * vision.grid_side != positions)
    return fields.unexpected("num_position_embeddings", "expected a square number");
  EVALCAR_ASSIGN_OR_RETURN(vision.deepstack,
                           fields.integers("deepstack_visual_indexes", 0, kMostLayers,
                                           static_cast<std::size_t>(text.layers), {8, 16, 24}));
  // The reference adds the levels in the order of the blocks, whatever the order of this list, and
  // takes a merger by its first place in it.
  if (std::ranges::adjacent_find(vision.deepstack, std::ranges::greater_equal()) !=
      vision.deepstack.end())
    return fields.unexpected("deepstack_visual_indexes", "expected a list that rises");
  EVALCAR_RETURN_IF_ERROR(fields.require("hidden_act", "gelu_pytorch_tanh"));
  EVALCAR_RETURN_IF_ERROR(vit::check_config(fields, vision, text.hidden));
  return vision;
}

}  // namespace

Result<Config> parse_config(const nlohmann::json& json, const std::string& place) {
  return qwen_vl::read_config(json, place, &read_text, &read_vision);
}

Result<std::unique_ptr<Model>> make_model(const nlohmann::json& config, const std::string& place) {
  EVALCAR_ASSIGN_OR_RETURN(Config parsed, parse_config(config, place));
  const auto levels = static_cast<std::int64_t>(parsed.vision.deepstack.size());
  return std::unique_ptr<Model>(
      std::make_unique<QwenVlModel<vit::Tower>>("qwen3_vl", std::move(parsed), levels));
}

}  // namespace evalcar::models::qwen3_vl
