#include "evaluator/kernels/few_rows.h"

#ifdef EVALCAR_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "evaluator/kernels/few_rows_cuda.h"
#endif

namespace evalcar::kernels {

#ifdef EVALCAR_CUDA

bool has_few_rows_kernel(const at::Tensor& x, const LinearWeights& weights) {
  const at::Tensor& w = weights.weight;
  const bool type = x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16;
  if (!x.is_cuda() || !type || x.dim() != 2 || x.size(0) < 1 || x.size(0) > kMostFewRows)
    return false;
  const auto is_readable = [&](const at::Tensor& each) {
    return each.device() == x.device() && each.scalar_type() == x.scalar_type() &&
           each.is_contiguous();
  };
  return is_readable(x) && is_readable(w) && x.size(1) * x.element_size() % 16 == 0 &&
         is_at_boundary(x.const_data_ptr()) && is_at_boundary(w.const_data_ptr()) &&
         (!weights.bias.defined() || is_readable(weights.bias)) &&
         at::cuda::getDeviceProperties(x.get_device())->major >= 8;
}

void multiply_few_rows(const at::Tensor& x, const LinearWeights& weights, RowsResult result,
                       const at::Tensor& y) {
  const std::int64_t outputs = weights.weight.size(0);
  TORCH_CHECK(has_few_rows_kernel(x, weights) && weights.weight.size(1) == x.size(1) &&
                  y.is_contiguous() && y.scalar_type() == x.scalar_type() &&
                  y.size(0) == x.size(0) &&
                  y.size(1) == (result == RowsResult::kGated ? outputs / 2 : outputs),
              "multiply_few_rows: rows and weights do not belong together");
  const c10::cuda::CUDAGuard guard(x.device());  // a launch goes to the current device
  const FewRowsLaunch launch{
      .type = x.scalar_type() == at::kFloat ? StoredType::kFloat32 : StoredType::kBFloat16,
      .x = x.const_data_ptr(),
      .w = weights.weight.const_data_ptr(),
      .bias = weights.bias.defined() ? weights.bias.const_data_ptr() : nullptr,
      .y = y.mutable_data_ptr(),
      .rows = x.size(0),
      .outputs = outputs,
      .width = x.size(1),
      .result = result};
  C10_CUDA_CHECK(launch_few_rows(launch, at::cuda::getCurrentCUDAStream(x.get_device())));
}

#else

bool has_few_rows_kernel(const at::Tensor&, const LinearWeights&) { return false; }

void multiply_few_rows(const at::Tensor&, const LinearWeights&, RowsResult, const at::Tensor&) {
  TORCH_CHECK(false, "multiply_few_rows: built without CUDA");
}

#endif

}  // namespace evalcar::kernels
