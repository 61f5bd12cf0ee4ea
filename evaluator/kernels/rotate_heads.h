// The rotary turn (Su et al. 2021, in the half-split form) of heads that go nowhere else: of vision
// towers, whose queries and keys are not written to a cache (place_heads.h).
#pragma once

#include <ATen/core/Tensor.h>

namespace evalcar::kernels {

/// Whether the kernel can do it: x float32 or bfloat16 on a GPU of compute capability 8.0 or newer,
/// halves of heads in whole vectors of 16 bytes at their boundaries, the angles contiguous float32.
bool has_rotate_kernel(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

/// Turns the pairs (x_i, x_{i+dim/2}) of each head by its row's angles. x: (rows, heads, dim), of
/// any strides; cos, sin: (rows, 1, dim/2). The result is contiguous, of x's dtype, computed in the
/// dtype of the angles; the bits are the reference's on every device. May throw c10::Error.
at::Tensor rotate_heads(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

/// The same by ATen operations.
at::Tensor rotate_heads_reference(const at::Tensor& x, const at::Tensor& cos,
                                  const at::Tensor& sin);

}  // namespace evalcar::kernels
