// The tensors of this tower, below "visual.", and where they land.
#pragma once

#include "evaluator/models/qwen2_5_vl/config.h"
#include "evaluator/weights/layout.h"

namespace evalcar::models::qwen2_5_vl {

/// Gate and up stacked into one tensor, the patch convolution as a matrix.
void add_tensors(weights::WeightLayout& layout, const VisionConfig& config);

}  // namespace evalcar::models::qwen2_5_vl
