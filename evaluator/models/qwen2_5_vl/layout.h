// The tensors of a Qwen2.5-VL checkpoint and where they land.
#pragma once

#include "evaluator/models/qwen2_5_vl/config.h"
#include "evaluator/weights/layout.h"

namespace evalcar::models::qwen2_5_vl {

/// Which tensors of a checkpoint the model needs, and how they lie on the device: query, key and
/// value stacked into one tensor, gate and up as well, the patch convolution as a matrix.
weights::WeightLayout weight_layout(const Config& config);

}  // namespace evalcar::models::qwen2_5_vl
