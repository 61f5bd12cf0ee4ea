// The tensors of a Qwen2.5-VL checkpoint and where they land.
#pragma once

#include <string>
#include <string_view>

#include "evaluator/models/qwen2_5_vl/config.h"
#include "evaluator/weights/layout.h"

namespace evalcar::models::qwen2_5_vl {

/// The hub's names are canonical ("model.layers.0…", "visual.…", "lm_head.weight"); the module's
/// own names (4.52 and later: "model.language_model.layers.0…", "model.visual.…") are mapped to
/// them.
std::string canonical_name(std::string_view stored);

/// Which tensors of a checkpoint the model needs, and how they lie on the device: query, key and
/// value stacked into one tensor, gate and up as well, the patch convolution as a matrix.
weights::WeightLayout weight_layout(const Config& config);

}  // namespace evalcar::models::qwen2_5_vl
