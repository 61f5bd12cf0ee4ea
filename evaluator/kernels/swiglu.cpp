#include "evaluator/kernels/swiglu.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/silu.h>

#ifdef EVALCAR_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "evaluator/kernels/swiglu_cuda.h"
#endif

namespace evalcar::kernels {

#ifdef EVALCAR_CUDA
namespace {

at::Tensor swiglu_by_kernel(const at::Tensor& both) {
  const c10::cuda::CUDAGuard guard(both.device());  // a launch goes to the current device
  const at::Tensor out = at::empty({both.size(0), both.size(1) / 2}, both.options());
  const auto type = both.scalar_type() == at::kFloat ? StoredType::kFloat32 : StoredType::kBFloat16;
  C10_CUDA_CHECK(launch_swiglu(type, both.const_data_ptr(), out.mutable_data_ptr(), out.size(0),
                               out.size(1), at::cuda::getCurrentCUDAStream(both.get_device())));
  return out;
}

}  // namespace
#endif

bool has_swiglu_kernel(const at::Tensor& both) {
#ifdef EVALCAR_CUDA
  const bool type = both.scalar_type() == at::kFloat || both.scalar_type() == at::kBFloat16;
  return both.is_cuda() && type && both.dim() == 2 && both.size(1) % 2 == 0 &&
         both.is_contiguous() && at::cuda::getDeviceProperties(both.get_device())->major >= 8;
#else
  (void)both;
  return false;
#endif
}

at::Tensor swiglu(const at::Tensor& both) {
#ifdef EVALCAR_CUDA
  if (has_swiglu_kernel(both)) return swiglu_by_kernel(both);
#endif
  return swiglu_reference(both);
}

at::Tensor swiglu_reference(const at::Tensor& both) {
  const std::int64_t width = both.size(1) / 2;
  return at::silu(both.narrow(1, 0, width)).mul_(both.narrow(1, width, width));
}

}  // namespace evalcar::kernels
