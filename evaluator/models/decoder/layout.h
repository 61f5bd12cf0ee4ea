// The tensors of a decoder and where they land.
#pragma once

#include "evaluator/models/decoder/config.h"
#include "evaluator/weights/layout.h"

namespace evalcar::models::decoder {

/// "model.embed_tokens.weight", "model.layers.N.…", "model.norm.weight", "lm_head.weight" (or its
/// tie); query, key and value stacked into one tensor, gate and up as well.
void add_tensors(weights::WeightLayout& layout, const Config& config);

}  // namespace evalcar::models::decoder
