// Qwen2 with three-axis positions under a ViT that attends over whole pictures.
#include "evaluator/models/qwen2_vl/model.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "evaluator/models/decoder/layout.h"
#include "evaluator/models/qwen_vl.h"
#include "evaluator/models/qwen_vl_model.h"
#include "evaluator/models/vit/layout.h"
#include "evaluator/models/vit/tower.h"

namespace evalcar::models::qwen2_vl {
namespace {

Result<decoder::Config> parse_text(const ConfigFields& fields) {
  EVALCAR_ASSIGN_OR_RETURN(
      decoder::Config text,
      decoder::read_config(
          fields, {.kv_heads = 8, .rms_norm_eps = 1e-5, .rope_theta = 1e6, .plain_rope = "mrope"}));
  text.qkv_bias = true;
  EVALCAR_RETURN_IF_ERROR(decoder::read_layer_windows(fields, /*first_windowed=*/80, text));
  EVALCAR_RETURN_IF_ERROR(
      qwen_vl::read_sections(fields, qwen_vl::Sections::kBlocks, {16, 24, 24}, text));
  return text;
}

// embed_dim is the tower's width; hidden_size that of the decoder.
Result<vit::Config> parse_vision(const ConfigFields& fields, const decoder::Config& text) {
  vit::Config vision{.depth = 32, .activation = vit::Activation::kQuickGelu};
  EVALCAR_RETURN_IF_ERROR(vit::read_config(fields, vision));
  EVALCAR_ASSIGN_OR_RETURN(vision.hidden, fields.integer("embed_dim", 4, kMostWidth, 1280));
  EVALCAR_ASSIGN_OR_RETURN(vision.out_hidden, fields.integer("hidden_size", 1, kMostWidth, 3584));
  EVALCAR_ASSIGN_OR_RETURN(const double ratio, fields.number("mlp_ratio", 0.01, 64, 4));
  vision.intermediate = static_cast<std::int64_t>(static_cast<double>(vision.hidden) * ratio);
  EVALCAR_RETURN_IF_ERROR(fields.require("hidden_act", "quick_gelu"));
  EVALCAR_RETURN_IF_ERROR(vit::check_config(fields, vision, text.hidden));
  return vision;
}

weights::WeightLayout layout_of(const Config& config) {
  weights::WeightLayout layout;
  layout.canonical_name = &qwen_vl::canonical_name;
  decoder::add_tensors(layout, config.text);
  vit::add_tensors(layout, config.vision);
  return layout;
}

}  // namespace

Result<Config> parse_config(const nlohmann::json& json, const std::string& place) {
  const ConfigFields root(json, place);
  EVALCAR_ASSIGN_OR_RETURN(const ConfigFields text, qwen_vl::text_fields(root));
  EVALCAR_ASSIGN_OR_RETURN(const ConfigFields vision, qwen_vl::vision_fields(root));
  Config config;
  EVALCAR_ASSIGN_OR_RETURN(config.text, parse_text(text));
  EVALCAR_ASSIGN_OR_RETURN(config.vision, parse_vision(vision, config.text));
  EVALCAR_ASSIGN_OR_RETURN(const auto common, qwen_vl::read_common(root, config.text));
  config.text.tied_head = common.tied_head;
  config.image_token_id = common.image_token_id;
  return config;
}

Result<std::unique_ptr<Model>> make_model(const nlohmann::json& config, const std::string& place) {
  EVALCAR_ASSIGN_OR_RETURN(Config parsed, parse_config(config, place));
  return std::unique_ptr<Model>(
      std::make_unique<QwenVlModel<Config, vit::Tower>>("qwen2_vl", std::move(parsed), &layout_of));
}

}  // namespace evalcar::models::qwen2_vl
