// The pixels of a picture that is read in squares (anyres.h).
#pragma once

#include "evaluator/vision/prepare.h"

namespace evalcar::vision {

/// The squares below each other: first the whole picture, its sides' ratio lost, then those of the
/// best resolution in reading order, the picture in their middle on black. `settings.anyres` is
/// set. Equal, byte for byte, to what transformers 5.17's LlavaOnevisionImageProcessor normalises.
Result<PreparedImage> prepare_tiles(const Image& image, const ProcessorSettings& settings,
                                    ResampleCode code);

}  // namespace evalcar::vision
