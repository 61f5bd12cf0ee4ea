#include "evaluator/kernels/rotate_heads.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#ifdef EVALCAR_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "evaluator/kernels/rotate_heads_cuda.h"
#endif

#include "evaluator/kernels/parallel.h"
#include "evaluator/kernels/row_passes.h"

namespace evalcar::kernels {
namespace {

bool has_plain_angles(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const auto plain = [&x](const at::Tensor& angles) {
    return angles.scalar_type() == at::kFloat && angles.is_contiguous() &&
           angles.device() == x.device() && angles.numel() * 2 == x.size(0) * x.size(2);
  };
  return x.dim() == 3 && plain(cos) && plain(sin);
}

bool is_one_pass(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  return x.is_cpu() && x.scalar_type() == at::kFloat && has_plain_angles(x, cos, sin) &&
         x.stride(2) == 1;
}

at::Tensor rotate_in_one_pass(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const at::Tensor y = at::empty(x.sizes(), x.options());
  const RotateRows rows{.x = x.const_data_ptr<float>(),
                        .row_stride = x.stride(0),
                        .head_stride = x.stride(1),
                        .cos = cos.const_data_ptr<float>(),
                        .sin = sin.const_data_ptr<float>(),
                        .y = y.mutable_data_ptr<float>(),
                        .heads = x.size(1),
                        .half = x.size(2) / 2};
  in_parallel(x.size(0), kPassGrain / (x.size(1) * x.size(2)),
              [&](std::int64_t first, std::int64_t count) { rotate_rows(rows, first, count); });
  return y;
}

}  // namespace

#ifdef EVALCAR_CUDA
namespace {

at::Tensor rotate_kernel(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const c10::cuda::CUDAGuard guard(x.device());  // a launch goes to the current device
  const at::Tensor y = at::empty(x.sizes(), x.options());
  const auto type = x.scalar_type() == at::kFloat ? StoredType::kFloat32 : StoredType::kBFloat16;
  const RotateLaunch launch{.x = x.const_data_ptr(),
                            .row_stride = x.stride(0),
                            .head_stride = x.stride(1),
                            .cos = cos.const_data_ptr<float>(),
                            .sin = sin.const_data_ptr<float>(),
                            .y = y.mutable_data_ptr(),
                            .rows = x.size(0),
                            .heads = x.size(1),
                            .half = x.size(2) / 2};
  C10_CUDA_CHECK(launch_rotate_heads(type, launch, at::cuda::getCurrentCUDAStream(x.get_device())));
  return y;
}

}  // namespace
#endif

bool has_rotate_kernel(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
#ifdef EVALCAR_CUDA
  const bool type = x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16;
  if (!x.is_cuda() || !type || !has_plain_angles(x, cos, sin)) return false;
  const std::int64_t vector = 16 / static_cast<std::int64_t>(x.element_size());
  return x.size(2) % (2 * vector) == 0 && x.stride(2) == 1 && x.stride(0) % vector == 0 &&
         x.stride(1) % vector == 0 && is_at_boundary(x.const_data_ptr()) &&
         is_at_boundary(cos.const_data_ptr()) && is_at_boundary(sin.const_data_ptr()) &&
         x.numel() / (2 * vector) <= INT32_MAX &&
         at::cuda::getDeviceProperties(x.get_device())->major >= 8;
#else
  (void)x;
  (void)cos;
  (void)sin;
  return false;
#endif
}

at::Tensor rotate_heads_reference(const at::Tensor& x, const at::Tensor& cos,
                                  const at::Tensor& sin) {
  const at::Tensor wide = x.to(cos.scalar_type());
  const std::int64_t half = x.size(-1) / 2;
  const at::Tensor first = wide.narrow(-1, 0, half);
  const at::Tensor second = wide.narrow(-1, half, half);
  return at::cat({first * cos - second * sin, second * cos + first * sin}, -1).to(x.scalar_type());
}

at::Tensor rotate_heads(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
#ifdef EVALCAR_CUDA
  if (has_rotate_kernel(x, cos, sin)) return rotate_kernel(x, cos, sin);
#endif
  if (is_one_pass(x, cos, sin)) return rotate_in_one_pass(x, cos, sin);
  return rotate_heads_reference(x, cos, sin);
}

}  // namespace evalcar::kernels
