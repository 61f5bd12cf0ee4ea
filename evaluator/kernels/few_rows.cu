// A block of few_rows_block.h for each four rows of the matrix.
#include "evaluator/kernels/few_rows_cuda.h"
#include "evaluator/kernels/kernel_launch.h"

namespace evalcar::kernels {
namespace {

// Of the blocks that may have to wait: asks for the beginnings of the block's rows of the matrix,
// so much of each that all of that fits into the L2 cache. Later blocks have nothing to wait for.
template <typename T>
__device__ void ask_for_weights(const FewRows<T>& p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  constexpr unsigned kFirstBlocks = 1056;  // eight on each multiprocessor of an H100
  if (blockIdx.x >= kFirstBlocks) return;
  constexpr std::int64_t kBytes = 4096, kLine = 128, kLines = kBytes / kLine;
  const std::int64_t width = p.width * static_cast<std::int64_t>(sizeof(T));
  for (int i = static_cast<int>(threadIdx.x); i < kOutputsOfBlock * kLines; i += kFewRowsThreads) {
    const std::int64_t output = output_of(p, blockIdx.x, static_cast<int>(i / kLines));
    const std::int64_t at = i % kLines * kLine;
    if (output >= p.outputs || at >= width) continue;
    const char* const row = reinterpret_cast<const char*>(p.w + output * p.width);
    asm volatile("prefetch.global.L2 [%0];" ::"l"(row + at));
  }
#endif
}

template <int kRows, typename T>
__global__ void __launch_bounds__(kFewRowsThreads) few_rows_kernel(const FewRows<T> p) {
  let_next_kernel_begin();
  ask_for_weights(p);  // into a cache that sees later writes, so that it is no read
  wait_for_earlier_kernels();
  __shared__ float shared[FewRowsShape<kRows>::kShared];
  DeviceBlock<typename FewRowsShape<kRows>::Own> block;
  multiply_few_rows<kRows>(p, blockIdx.x, block, shared);
}

template <typename T>
cudaError_t launch_type(const FewRowsLaunch& l, cudaStream_t stream) {
  const FewRows<T> p{static_cast<const T*>(l.x),
                     static_cast<const T*>(l.w),
                     static_cast<const T*>(l.bias),
                     static_cast<T*>(l.y),
                     l.rows,
                     l.outputs,
                     l.width,
                     l.result};
  const std::int64_t blocks = few_rows_blocks(p);
  if (p.width % kVector<T> != 0 || blocks > INT32_MAX) return cudaErrorInvalidValue;
  if (!is_at_boundary(l.x) || !is_at_boundary(l.w)) return cudaErrorInvalidValue;
  const auto grid = static_cast<unsigned>(blocks);
  switch (p.rows) {
    case 1:
      return launch(few_rows_kernel<1, T>, grid, kFewRowsThreads, stream, p);
    case 2:
      return launch(few_rows_kernel<2, T>, grid, kFewRowsThreads, stream, p);
    case 3:
      return launch(few_rows_kernel<3, T>, grid, kFewRowsThreads, stream, p);
    case kMostFewRows:
      return launch(few_rows_kernel<kMostFewRows, T>, grid, kFewRowsThreads, stream, p);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t launch_few_rows(const FewRowsLaunch& launch, cudaStream_t stream) {
  if (launch.rows == 0 || launch.outputs == 0) return cudaSuccess;
  return launch.type == StoredType::kFloat32 ? launch_type<float>(launch, stream)
                                             : launch_type<BFloat16>(launch, stream);
}

}  // namespace evalcar::kernels
