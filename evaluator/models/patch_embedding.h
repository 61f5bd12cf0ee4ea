// The patch embedding of towers that read films: its kernel spans several frames, and a still
// picture shows the same pixels in each of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace evalcar::models {

/// The kernel that embed_patches() takes. weight: (hidden, channels · frames · p²). In float32 the
/// frames are added once per checkpoint, since Σ_t w_t · x = (Σ_t w_t) · x: (hidden, channels ·
/// p²). In bfloat16 a sum of two kernels would be rounded once more than what transformers
/// multiplies with, which moves nearly half of the products' bits; there, and where it spans one
/// frame, it is `weight` itself. May throw c10::Error.
at::Tensor still_kernel(const at::Tensor& weight, std::int64_t channels, std::int64_t frames);

/// Patches of one frame, (patches, channels · p²) of any dtype, as a still_kernel() reads them:
/// (patches, kernel.size(1)) in its dtype, each frame the same. May throw c10::Error.
at::Tensor still_patches(const at::Tensor& patches, const at::Tensor& kernel,
                         std::int64_t channels);

}  // namespace evalcar::models
