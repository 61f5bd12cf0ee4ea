#include "evaluator/kernels/rms_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsqrt.h>

#ifdef EVALCAR_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "evaluator/kernels/rms_norm_cuda.h"
#endif

#include "evaluator/kernels/parallel.h"
#include "evaluator/kernels/row_passes.h"

namespace evalcar::kernels {
namespace {

bool is_one_pass(const at::Tensor& x, const at::Tensor& weight) {
  return x.is_cpu() && x.scalar_type() == at::kFloat && weight.scalar_type() == at::kFloat &&
         x.dim() == 2 && x.is_contiguous() && weight.is_contiguous();
}

at::Tensor rms_norm_in_one_pass(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor y = at::empty_like(x);
  const NormRows rows{.x = x.const_data_ptr<float>(),
                      .weight = weight.const_data_ptr<float>(),
                      .y = y.mutable_data_ptr<float>(),
                      .width = x.size(1),
                      .eps = static_cast<float>(eps)};
  in_parallel(x.size(0), kPassGrain / x.size(1),
              [&](std::int64_t first, std::int64_t count) { norm_rows(rows, first, count); });
  return y;
}

}  // namespace

#ifdef EVALCAR_CUDA
namespace {

at::Tensor rms_norm_kernel(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const c10::cuda::CUDAGuard guard(x.device());  // a launch goes to the current device
  at::Tensor y = at::empty_like(x);
  const auto type = x.scalar_type() == at::kFloat ? StoredType::kFloat32 : StoredType::kBFloat16;
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

bool has_rms_norm_kernel(const at::Tensor& x, const at::Tensor& weight) {
#ifdef EVALCAR_CUDA
  const bool type = x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16;
  return x.is_cuda() && type && weight.scalar_type() == x.scalar_type() &&
         weight.device() == x.device() && x.dim() == 2 && weight.numel() == x.size(1) &&
         x.is_contiguous() && weight.is_contiguous() && x.size(0) <= INT32_MAX &&
         at::cuda::getDeviceProperties(x.get_device())->major >= 8;
#else
  (void)x;
  (void)weight;
  return false;
#endif
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
#ifdef EVALCAR_CUDA
  if (has_rms_norm_kernel(x, weight)) return rms_norm_kernel(x, weight, eps);
#endif
  if (is_one_pass(x, weight)) return rms_norm_in_one_pass(x, weight, eps);
  return rms_norm_reference(x, weight, eps);
}

}  // namespace evalcar::kernels
