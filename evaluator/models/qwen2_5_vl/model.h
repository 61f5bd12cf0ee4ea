// Qwen2.5-VL: model_type "qwen2_5_vl", architecture Qwen2_5_VLForConditionalGeneration.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "evaluator/models/model.h"
#include "store/base/result.h"

namespace evalcar::models::qwen2_5_vl {

/// The model of a config.json, without weights. `place` names the file in messages.
Result<std::unique_ptr<Model>> make_model(const nlohmann::json& config, const std::string& place);

}  // namespace evalcar::models::qwen2_5_vl
