// The gate of a SwiGLU layer (Shazeer 2020) over its fused product.
#pragma once

#include <ATen/core/Tensor.h>

namespace evalcar::kernels {

/// silu(gate) · up, of which `both` is the two halves: (rows, 2 · width) to (rows, width). silu is
/// rounded to the dtype before it multiplies. The CUDA kernel where it applies (contiguous, float32
/// and bfloat16, compute capability 8.0 or newer), else swiglu_reference(). May throw c10::Error.
at::Tensor swiglu(const at::Tensor& both);

/// The same by ATen operations, on every device.
at::Tensor swiglu_reference(const at::Tensor& both);

}  // namespace evalcar::kernels
