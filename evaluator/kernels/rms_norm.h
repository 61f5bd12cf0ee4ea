// Root-mean-square normalisation (Zhang and Sennrich 2019), as the Qwen and Llama families compute
// it.
#pragma once

#include <ATen/core/Tensor.h>

namespace evalcar::kernels {

/// y = weight · cast(x / sqrt(mean(x²) + eps)): the mean and the division in float32, the result of
/// the division rounded to x's dtype before the weight multiplies it. x: (rows, width); weight:
/// (width).
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

}  // namespace evalcar::kernels
