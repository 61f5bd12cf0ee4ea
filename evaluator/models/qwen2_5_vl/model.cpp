#include "evaluator/models/qwen2_5_vl/model.h"

#include <utility>

#include "evaluator/models/qwen2_5_vl/config.h"
#include "evaluator/models/qwen2_5_vl/layout.h"
#include "evaluator/models/qwen2_5_vl/vision.h"
#include "evaluator/models/qwen_vl_model.h"

namespace evalcar::models::qwen2_5_vl {

Result<std::unique_ptr<Model>> make_model(const nlohmann::json& config, const std::string& place) {
  EVALCAR_ASSIGN_OR_RETURN(Config parsed, parse_config(config, place));
  return std::unique_ptr<Model>(
      std::make_unique<QwenVlModel<VisionTower>>("qwen2_5_vl", std::move(parsed)));
}

}  // namespace evalcar::models::qwen2_5_vl
