// Widths that a GPU's matrix products want.
#pragma once

#include <cstdint>

#include "evaluator/kernels/linear.h"

namespace evalcar::models {

/// A SwiGLU layer: what goes in, gate and values, and what comes out.
struct GatedLayer {
  kernels::LinearWeights gate_up;  ///< (2 · inner, width)
  kernels::LinearWeights down;     ///< (width, inner)
};

/// The same layer with its inner width filled up to a multiple of `multiple` with zeros, which add
/// nothing: silu(0) · 0 = 0. A copy, unless it is one already. A row of 3,420 bfloat16 numbers, as
/// in the vision tower of Qwen2.5-VL, begins at no boundary of 16 bytes: cuBLAS then takes three
/// times as long, and kernels go number by number. May throw c10::Error.
GatedLayer in_whole_vectors(const GatedLayer& layer, std::int64_t multiple = 8);

}  // namespace evalcar::models
