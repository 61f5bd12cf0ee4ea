// A block of window_attention_block.h for each head of each window.
#include "evaluator/kernels/kernel_launch.h"
#include "evaluator/kernels/window_attention_block.h"
#include "evaluator/kernels/window_attention_cuda.h"

namespace evalcar::kernels {
namespace {

constexpr int kBlocks = 3;  // of a multiprocessor at once

template <int kDim>
__global__ void __launch_bounds__(kWindowThreads, kBlocks) window_kernel(const WindowAttention a) {
  let_next_kernel_begin();
  wait_for_earlier_kernels();
  DeviceBlock<typename WindowShape<kDim>::Own> block;
  const auto heads = static_cast<unsigned>(a.heads);
  attend_window<kDim>(a, blockIdx.x / heads, blockIdx.x % heads, block);
}

}  // namespace

cudaError_t launch_window_attention(const WindowLaunch& l, cudaStream_t stream) {
  if (l.windows == 0 || l.heads == 0) return cudaSuccess;
  if (l.windows > INT32_MAX / l.heads) return cudaErrorInvalidConfiguration;
  for (const std::int64_t stride : {l.q_stride, l.k_stride, l.v_stride})
    if (stride % kVector<BFloat16> != 0) return cudaErrorInvalidValue;
  for (const void* const address : {l.q, l.k, l.v})
    if (!is_at_boundary(address)) return cudaErrorInvalidValue;
  if (!is_at_boundary(l.out)) return cudaErrorInvalidValue;
  const WindowAttention a{static_cast<const BFloat16*>(l.q),
                          static_cast<const BFloat16*>(l.k),
                          static_cast<const BFloat16*>(l.v),
                          l.q_stride,
                          l.k_stride,
                          l.v_stride,
                          l.begins,
                          l.heads,
                          l.scale,
                          static_cast<BFloat16*>(l.out)};
  const auto blocks = static_cast<unsigned>(l.windows * l.heads);
  switch (l.dim) {
    case 64:
      return launch(window_kernel<64>, blocks, kWindowThreads, stream, a);
    case 80:
      return launch(window_kernel<80>, blocks, kWindowThreads, stream, a);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace evalcar::kernels
