// LLaVA-OneVision: model_type "llava_onevision", architecture
// LlavaOnevisionForConditionalGeneration.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "evaluator/models/model.h"
#include "store/base/result.h"

namespace evalcar::models::llava_onevision {

/// The model of a config.json, without weights. `place` names the file in messages.
Result<std::unique_ptr<Model>> make_model(const nlohmann::json& config, const std::string& place);

}  // namespace evalcar::models::llava_onevision
