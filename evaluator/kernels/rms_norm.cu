// A block of rms_norm_block.h for each row.
#include "evaluator/kernels/kernel_launch.h"
#include "evaluator/kernels/rms_norm_block.h"
#include "evaluator/kernels/rms_norm_cuda.h"

namespace evalcar::kernels {
namespace {

template <int kCount, typename T>
__global__ void __launch_bounds__(kNormThreads) norm_kernel(const RmsNorm<T> n) {
  let_next_kernel_begin();
  wait_for_earlier_kernels();
  __shared__ float shared[kNormWarps];
  DeviceBlock<NormOwn> block;
  norm_row<kCount>(n, blockIdx.x, block, shared);
}

template <typename T>
cudaError_t launch_type(const RmsNorm<T>& n, cudaStream_t stream) {
  if (n.rows > INT32_MAX) return cudaErrorInvalidConfiguration;
  const bool whole = n.width % kVector<T> == 0 && is_at_boundary(n.x) && is_at_boundary(n.weight) &&
                     is_at_boundary(n.y);
  const auto blocks = static_cast<unsigned>(n.rows);
  return launch(whole ? norm_kernel<kVector<T>, T> : norm_kernel<1, T>, blocks, kNormThreads,
                stream, n);
}

}  // namespace

cudaError_t launch_rms_norm(StoredType type, const void* x, const void* weight, void* y,
                            std::int64_t rows, std::int64_t width, float eps, cudaStream_t stream) {
  if (rows == 0 || width == 0) return cudaSuccess;
  if (type == StoredType::kFloat32)
    return launch_type(
        RmsNorm<float>{static_cast<const float*>(x), static_cast<const float*>(weight),
                       static_cast<float*>(y), rows, width, eps},
        stream);
  return launch_type(
      RmsNorm<BFloat16>{static_cast<const BFloat16*>(x), static_cast<const BFloat16*>(weight),
                        static_cast<BFloat16*>(y), rows, width, eps},
      stream);
}

}  // namespace evalcar::kernels
