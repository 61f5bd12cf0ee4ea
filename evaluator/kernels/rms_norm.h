// Root-mean-square normalisation (Zhang and Sennrich 2019), as the Qwen and Llama families compute
// it.
#pragma once

#include <ATen/core/Tensor.h>

namespace evalcar::kernels {

/// y = weight · cast(x / sqrt(mean(x²) + eps)): the mean and the division in float32, the result of
/// the division rounded to x's dtype before the weight multiplies it. x: (rows, width) contiguous;
/// weight: (width), of x's dtype. The CUDA kernel where has_rms_norm_kernel(), on the CPU
/// one pass over float32, else rms_norm_reference().
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

/// Both are on a GPU of compute capability 8.0 or newer, contiguous, and float32 or both bfloat16.
bool has_rms_norm_kernel(const at::Tensor& x, const at::Tensor& weight);

/// The same by ATen operations, on every device.
at::Tensor rms_norm_reference(const at::Tensor& x, const at::Tensor& weight, double eps);

}  // namespace evalcar::kernels
