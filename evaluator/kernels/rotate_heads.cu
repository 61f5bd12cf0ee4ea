// A thread for each vector of the heads' first halves.
#include "evaluator/kernels/kernel_launch.h"
#include "evaluator/kernels/rotate_heads_block.h"
#include "evaluator/kernels/rotate_heads_cuda.h"

namespace evalcar::kernels {
namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void __launch_bounds__(kThreads) rotate_kernel(const RotateHeads<T> r) {
  let_next_kernel_begin();
  wait_for_earlier_kernels();
  const std::int64_t task =
      static_cast<std::int64_t>(blockIdx.x) * kThreads + static_cast<std::int64_t>(threadIdx.x);
  if (task < r.tasks()) turn_vector(r, static_cast<std::uint32_t>(task));
}

template <typename T>
cudaError_t launch_type(const RotateLaunch& l, cudaStream_t stream) {
  const RotateHeads<T> r{static_cast<const T*>(l.x), l.row_stride, l.head_stride, l.cos, l.sin,
                         static_cast<T*>(l.y),       l.rows,       l.heads,       l.half};
  if (r.tasks() == 0) return cudaSuccess;
  if (r.tasks() > INT32_MAX) return cudaErrorInvalidConfiguration;
  const auto blocks = static_cast<unsigned>((r.tasks() + kThreads - 1) / kThreads);
  return launch(rotate_kernel<T>, blocks, kThreads, stream, r);
}

}  // namespace

cudaError_t launch_rotate_heads(StoredType type, const RotateLaunch& launch, cudaStream_t stream) {
  return type == StoredType::kFloat32 ? launch_type<float>(launch, stream)
                                      : launch_type<BFloat16>(launch, stream);
}

}  // namespace evalcar::kernels
