// The gate of a SwiGLU layer (Shazeer 2020) over its fused product.
#pragma once

#include <ATen/core/Tensor.h>

namespace evalcar::kernels {

/// silu(gate) · up, of which `both` is the two halves: (rows, 2 · width) to (rows, width). silu is
/// rounded to the dtype before it multiplies. The CUDA kernel where has_swiglu_kernel(), else
/// swiglu_reference(). May throw c10::Error.
at::Tensor swiglu(const at::Tensor& both);

/// `both` is contiguous, float32 or bfloat16, on a GPU of compute capability 8.0 or newer.
bool has_swiglu_kernel(const at::Tensor& both);

/// The same by ATen operations, on every device.
at::Tensor swiglu_reference(const at::Tensor& both);

}  // namespace evalcar::kernels
