// The tensors of such a tower, below "visual.".
#pragma once

#include "evaluator/models/vit/config.h"
#include "evaluator/weights/layout.h"

namespace evalcar::models::vit {

void add_tensors(weights::WeightLayout& layout, const Config& config);

}  // namespace evalcar::models::vit
