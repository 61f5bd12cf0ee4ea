// A thread for each vector of the result.
#include "evaluator/kernels/kernel_launch.h"
#include "evaluator/kernels/swiglu_block.h"
#include "evaluator/kernels/swiglu_cuda.h"

namespace evalcar::kernels {
namespace {

constexpr int kThreads = 256;

template <int kCount, typename T>
__global__ void __launch_bounds__(kThreads) swiglu_kernel(const Swiglu<T> s) {
  let_next_kernel_begin();
  wait_for_earlier_kernels();
  const std::int64_t number =
      static_cast<std::int64_t>(blockIdx.x) * kThreads + static_cast<std::int64_t>(threadIdx.x);
  if (number < s.rows * (s.width / kCount)) gate_numbers<kCount>(s, number);
}

template <int kCount, typename T>
cudaError_t launch_numbers(const Swiglu<T>& s, cudaStream_t stream) {
  const std::int64_t blocks = (s.rows * (s.width / kCount) + kThreads - 1) / kThreads;
  if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
  return launch(swiglu_kernel<kCount, T>, static_cast<unsigned>(blocks), kThreads, stream, s);
}

template <typename T>
cudaError_t launch_type(const Swiglu<T>& s, cudaStream_t stream) {
  const bool whole = s.width % kVector<T> == 0 && is_at_boundary(s.both) && is_at_boundary(s.out);
  return whole ? launch_numbers<kVector<T>>(s, stream) : launch_numbers<1>(s, stream);
}

}  // namespace

cudaError_t launch_swiglu(StoredType type, const void* both, void* out, std::int64_t rows,
                          std::int64_t width, cudaStream_t stream) {
  if (rows == 0 || width == 0) return cudaSuccess;
  if (type == StoredType::kFloat32)
    return launch_type(
        Swiglu<float>{static_cast<const float*>(both), static_cast<float*>(out), rows, width},
        stream);
  return launch_type(Swiglu<BFloat16>{static_cast<const BFloat16*>(both),
                                      static_cast<BFloat16*>(out), rows, width},
                     stream);
}

}  // namespace evalcar::kernels
