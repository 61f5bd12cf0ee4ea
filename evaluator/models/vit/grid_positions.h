// Which of a square grid of learned positions a patch takes, and how much of each: bilinear, the
// corners of the grid on the corners of the picture. Pure arithmetic, without libtorch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evaluator/models/positions.h"

namespace evalcar::models::vit {

/// Four positions a patch, in the order of the patches (merge windows first).
struct GridTaps {
  std::vector<std::int64_t> indices;  ///< (patches · 4): row · side + column
  std::vector<float> weights;         ///< (patches · 4)
};

/// With the float32 arithmetic of transformers 5.17's interpolation.
GridTaps grid_taps(std::span<const ImageGrid> grids, std::int64_t merge, std::int64_t side);

}  // namespace evalcar::models::vit
