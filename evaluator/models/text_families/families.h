// The text models: each a decoder whose switches its own file sets from config.json, in the form of
// transformers 4.x or 5.x. `place` names the file in messages. kCorruption for absurd or
// contradicting numbers, kUnsupported by name for what is not computed.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "evaluator/models/decoder/config.h"
#include "store/base/result.h"

namespace evalcar::models::text_families {

Result<decoder::Config> parse_llama(const nlohmann::json& json, const std::string& place);
Result<decoder::Config> parse_mistral(const nlohmann::json& json, const std::string& place);
Result<decoder::Config> parse_qwen2(const nlohmann::json& json, const std::string& place);
Result<decoder::Config> parse_qwen3(const nlohmann::json& json, const std::string& place);

}  // namespace evalcar::models::text_families
