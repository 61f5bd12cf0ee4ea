// A block of few_rows_block.h for each four rows of the matrix.
#include "evaluator/kernels/few_rows_cuda.h"

namespace evalcar::kernels {
namespace {

template <int kRows, typename T>
__global__ void __launch_bounds__(kFewRowsThreads) few_rows_kernel(const FewRows<T> p) {
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
      few_rows_kernel<1><<<grid, kFewRowsThreads, 0, stream>>>(p);
      break;
    case 2:
      few_rows_kernel<2><<<grid, kFewRowsThreads, 0, stream>>>(p);
      break;
    case 3:
      few_rows_kernel<3><<<grid, kFewRowsThreads, 0, stream>>>(p);
      break;
    case kMostFewRows:
      few_rows_kernel<kMostFewRows><<<grid, kFewRowsThreads, 0, stream>>>(p);
      break;
    default:
      return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_few_rows(const FewRowsLaunch& launch, cudaStream_t stream) {
  if (launch.rows == 0 || launch.outputs == 0) return cudaSuccess;
  return launch.type == StoredType::kFloat32 ? launch_type<float>(launch, stream)
                                             : launch_type<BFloat16>(launch, stream);
}

}  // namespace evalcar::kernels
