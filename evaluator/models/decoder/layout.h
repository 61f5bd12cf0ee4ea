// The tensors of a decoder and where they land.
#pragma once

#include <string_view>

#include "evaluator/models/decoder/config.h"
#include "evaluator/weights/layout.h"

namespace evalcar::models::decoder {

/// "model.embed_tokens.weight", "model.layers.N.…", "model.norm.weight", "lm_head.weight" (or its
/// tie); query, key and value stacked into one tensor, gate and up as well.
void add_tensors(weights::WeightLayout& layout, const Config& config);
/// Whether a tensor of this canonical name is one of those, in any configuration.
bool is_tensor_of_decoder(std::string_view name);

}  // namespace evalcar::models::decoder
