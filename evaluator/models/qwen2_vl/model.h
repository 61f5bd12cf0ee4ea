// Qwen2-VL (Wang et al. 2024): model_type "qwen2_vl", architecture Qwen2VLForConditionalGeneration.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "evaluator/models/decoder/config.h"
#include "evaluator/models/model.h"
#include "evaluator/models/vit/config.h"
#include "store/base/result.h"

namespace evalcar::models::qwen2_vl {

struct Config {
  decoder::Config text;
  vit::Config vision;
  int image_token_id = 0;
};

/// From config.json in any of its forms: flat (transformers up to 4.51 and the hub), nested beside
/// flat (4.52 to 4.57), nested (5.x). kCorruption for absurd or contradicting numbers, kUnsupported
/// by name for what is not computed.
Result<Config> parse_config(const nlohmann::json& json, const std::string& place);

/// The model of a config.json, without weights. `place` names the file in messages.
Result<std::unique_ptr<Model>> make_model(const nlohmann::json& config, const std::string& place);

}  // namespace evalcar::models::qwen2_vl
