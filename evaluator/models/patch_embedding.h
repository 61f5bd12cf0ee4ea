// The patch embedding of towers that read films: its kernel spans several frames, and a still
// picture shows the same pixels in each of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace evalcar::models {

/// What such a kernel makes of a still picture: Σ_t w_t · x = (Σ_t w_t) · x, so its frames are
/// added once per checkpoint, and patches hold one frame. weight: (hidden, channels · frames · p²).
/// Returns (hidden, channels · p²) on its device in its dtype, added in float32 and rounded once;
/// `weight` itself where it spans one frame. May throw c10::Error.
at::Tensor fold_frames(const at::Tensor& weight, std::int64_t channels, std::int64_t frames);

}  // namespace evalcar::models
