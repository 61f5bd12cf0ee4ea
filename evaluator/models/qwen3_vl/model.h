// Qwen3-VL, dense (Bai et al. 2025): model_type "qwen3_vl", architecture
// Qwen3VLForConditionalGeneration.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "evaluator/models/model.h"
#include "evaluator/models/qwen_vl.h"
#include "evaluator/models/vit/config.h"
#include "store/base/result.h"

namespace evalcar::models::qwen3_vl {

using Config = qwen_vl::Config<vit::Config>;

/// qwen_vl::read_config() of this family, which transformers 4.57 and later write.
Result<Config> parse_config(const nlohmann::json& json, const std::string& place);

/// The model of a config.json, without weights. `place` names the file in messages.
Result<std::unique_ptr<Model>> make_model(const nlohmann::json& config, const std::string& place);

}  // namespace evalcar::models::qwen3_vl
