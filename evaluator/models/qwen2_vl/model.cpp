// Qwen2 with three-axis positions under a ViT that attends over whole pictures.
#include "evaluator/models/qwen2_vl/model.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "evaluator/models/qwen_vl.h"
#include "evaluator/models/qwen_vl_model.h"
#include "evaluator/models/vit/layout.h"
#include "evaluator/models/vit/tower.h"

namespace evalcar::models::qwen2_vl {
namespace {

// embed_dim is the tower's width; hidden_size that of the decoder.
Result<vit::Config> read_vision(const ConfigFields& fields, const decoder::Config& text) {
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

}  // namespace

Result<Config> parse_config(const nlohmann::json& json, const std::string& place) {
  return qwen_vl::read_config(json, place, &qwen_vl::read_qwen2_text, &read_vision);
}

Result<std::unique_ptr<Model>> make_model(const nlohmann::json& config, const std::string& place) {
  EVALCAR_ASSIGN_OR_RETURN(Config parsed, parse_config(config, place));
  return std::unique_ptr<Model>(
      std::make_unique<QwenVlModel<vit::Tower>>("qwen2_vl", std::move(parsed)));
}

}  // namespace evalcar::models::qwen2_vl
