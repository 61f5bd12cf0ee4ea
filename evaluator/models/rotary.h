// Rotary position embedding (Su et al. 2021), in the half-split form of the Hugging Face models.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "evaluator/models/rotary_settings.h"

namespace evalcar::models {

/// 1 / base^(2i/dim) for i in [0, dim/2): (dim/2) float32, with torch's own rounding.
at::Tensor rotary_frequencies(double base, std::int64_t dim, at::Device device);

/// The same, slowed down as the settings say.
at::Tensor rotary_frequencies(const RotarySettings& settings, std::int64_t dim, at::Device device);

/// Angles of a batch of rows. cos, sin: (rows, 1, dim/2), contiguous: the passes over rows, on the
/// CPU and on a GPU, take no others.
struct RotaryAngles {
  at::Tensor cos;
  at::Tensor sin;
};

/// cos and sin of `angles` (rows, dim/2) float32, of any strides, in `dtype`.
RotaryAngles rotary_angles(const at::Tensor& angles, at::ScalarType dtype);

/// Turns the pairs (x_i, x_{i+dim/2}) of each head. x: (rows, heads, dim), of any strides; the
/// result is contiguous, of x's dtype, computed in the dtype of the angles.
at::Tensor rotate(const at::Tensor& x, const RotaryAngles& angles);

}  // namespace evalcar::models
