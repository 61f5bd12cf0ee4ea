#include "evaluator/kernels/rms_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsqrt.h>

#ifdef EVALCAR_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "evaluator/kernels/rms_norm_cuda.h"
#endif

namespace evalcar::kernels {

#ifdef EVALCAR_CUDA
namespace {

bool kernel_applies(const at::Tensor& x, const at::Tensor& weight) {
  const bool type = x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16;
  return x.is_cuda() && type && weight.scalar_type() == x.scalar_type() && x.dim() == 2 &&
         x.is_contiguous() && weight.is_contiguous() && x.size(0) <= INT32_MAX &&
         at::cuda::getDeviceProperties(x.get_device())->major >= 8;
}

at::Tensor rms_norm_kernel(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const c10::cuda::CUDAGuard guard(x.device());  // a launch goes to the current device
  at::Tensor y = at::empty_like(x);
  const auto type = x.scalar_type() == at::kFloat ? RmsNormType::kFloat32 : RmsNormType::kBFloat16;
  C10_CUDA_CHECK(launch_rms_norm(
      type, x.const_data_ptr(), weight.const_data_ptr(), y.mutable_data_ptr(), x.size(0), x.size(1),
      static_cast<float>(eps), at::cuda::getCurrentCUDAStream(x.get_device())));
  return y;
}

}  // namespace
#endif

at::Tensor rms_norm_reference(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor scale = wide.pow(2).mean({-1}, /*keepdim=*/true).add_(eps).rsqrt_();
  return (wide * scale).to(x.scalar_type()).mul_(weight);
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
#ifdef EVALCAR_CUDA
  if (kernel_applies(x, weight)) return rms_norm_kernel(x, weight, eps);
#endif
  return rms_norm_reference(x, weight, eps);
}

}  // namespace evalcar::kernels
