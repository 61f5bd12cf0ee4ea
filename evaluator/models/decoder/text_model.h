// A decoder by itself, as a model: the text families.
#pragma once

#include <memory>
#include <string>

#include "evaluator/models/decoder/config.h"
#include "evaluator/models/model.h"

namespace evalcar::models::decoder {

/// What of a decoder's numbers the engine needs.
ModelInfo describe(const std::string& model_type, const Config& config);

/// Tokens stand in a line; pictures are refused by name.
std::unique_ptr<Model> make_text_model(const std::string& model_type, Config config);

}  // namespace evalcar::models::decoder
