// Whether two checkpoints see pictures alike.
#pragma once

#include <span>
#include <string>

#include "evaluator/weights/layout.h"
#include "store/checkpoint/plan.h"

namespace evalcar::models {

/// SHA-256 (hexadecimal) over names, dtypes, shapes and stored bytes of all tensors that what a
/// model makes of pictures can follow from: all but the decoder's, under their canonical names. So
/// a tensor that a family adds is in it, too, and one that nothing reads costs at most an encoding
/// too many. `tensors`: all of a checkpoint; `layout`: the model's.
std::string tower_sha256(std::span<const checkpoint::TensorDigest> tensors,
                         const weights::WeightLayout& layout);

}  // namespace evalcar::models
