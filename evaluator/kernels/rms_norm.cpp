#include "evaluator/kernels/rms_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsqrt.h>

namespace evalcar::kernels {

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor scale = wide.pow(2).mean({-1}, /*keepdim=*/true).add_(eps).rsqrt_();
  return (wide * scale).to(x.scalar_type()).mul_(weight);
}

}  // namespace evalcar::kernels
