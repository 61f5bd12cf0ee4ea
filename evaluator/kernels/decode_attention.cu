// The grid of decode_attention_block.h: a block for each split, share of heads and row; a thread
// for each number of the result that brings splits together.
#include "evaluator/kernels/decode_attention_cuda.h"
#include "evaluator/kernels/decode_attention_threads.h"
#include "evaluator/kernels/decode_attention_tiles.h"
#include "evaluator/kernels/kernel_launch.h"

namespace evalcar::kernels {
namespace {

constexpr std::int64_t kMostOfGrid = 65535;  // along y and z
constexpr int kMergeThreads = 256;
constexpr int kTileBlocks = 2;  // of a multiprocessor at once

template <int kDim, int kGroup>
__global__ void __launch_bounds__(kDecodeThreads) split_kernel(const DecodeAttention<float> a) {
  let_next_kernel_begin();
  wait_for_earlier_kernels();
  using Shape = ThreadShape<kDim, kGroup>;
  __shared__ __align__(16) float shared[Shape::kShared];
  DeviceBlock<typename Shape::Own> block;
  attend_by_threads<kDim, kGroup>(a, blockIdx.z,
                                  head_share(a.heads, a.kv_heads, kGroup, blockIdx.y), blockIdx.x,
                                  block, shared);
}

template <int kDim, int kGroup>
__global__ void __launch_bounds__(kDecodeThreads, kTileBlocks)
    split_kernel(const DecodeAttention<BFloat16> a) {
  let_next_kernel_begin();
  wait_for_earlier_kernels();
  static_assert(kGroup == kMostGroup);
  using Shape = TileShape<kDim>;
  __shared__ __align__(16) float shared[Shape::kShared];
  DeviceBlock<typename Shape::Own> block;
  attend_by_tiles<kDim>(a, blockIdx.z, head_share(a.heads, a.kv_heads, kGroup, blockIdx.y),
                        blockIdx.x, block, shared);
}

template <typename T>
__global__ void __launch_bounds__(kMergeThreads) merge_kernel(const DecodeAttention<T> a) {
  let_next_kernel_begin();
  wait_for_earlier_kernels();
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kMergeThreads +
                             static_cast<std::int64_t>(threadIdx.x);
  if (index < a.rows * a.heads * a.dim) merge_splits(a, index);
}

template <typename T, int kDim, int kGroup>
cudaError_t launch_group(const DecodeAttention<T>& a, cudaStream_t stream) {
  const std::int64_t shares = head_shares(a.heads, a.kv_heads, kGroup);
  const std::int64_t merges = (a.rows * a.heads * a.dim + kMergeThreads - 1) / kMergeThreads;
  if (a.rows > kMostOfGrid || shares > kMostOfGrid || a.splits > INT32_MAX || merges > INT32_MAX)
    return cudaErrorInvalidConfiguration;
  const dim3 grid(static_cast<unsigned>(a.splits), static_cast<unsigned>(shares),
                  static_cast<unsigned>(a.rows));
  void (*const split)(DecodeAttention<T>) = split_kernel<kDim, kGroup>;
  const cudaError_t launched = launch(split, grid, kDecodeThreads, stream, a);
  if (launched != cudaSuccess || a.splits == 1) return launched;
  return launch(merge_kernel<T>, static_cast<unsigned>(merges), kMergeThreads, stream, a);
}

template <int kDim>
cudaError_t launch_dim(const DecodeAttention<BFloat16>& a, cudaStream_t stream) {
  return launch_group<BFloat16, kDim, kMostGroup>(a, stream);
}

template <int kDim>
cudaError_t launch_dim(const DecodeAttention<float>& a, cudaStream_t stream) {
  switch (heads_of_block(a.heads / a.kv_heads)) {
    case 1:
      return launch_group<float, kDim, 1>(a, stream);
    case 2:
      return launch_group<float, kDim, 2>(a, stream);
    case 4:
      return launch_group<float, kDim, 4>(a, stream);
    default:
      return launch_group<float, kDim, kMostGroup>(a, stream);
  }
}

template <typename T>
cudaError_t launch_type(const DecodeLaunch& l, cudaStream_t stream) {
  for (const std::int64_t stride : {l.slot_stride, l.position_stride, l.head_stride})
    if (stride % kVector<T> != 0) return cudaErrorInvalidValue;
  if (!is_at_boundary(l.k) || !is_at_boundary(l.v)) return cudaErrorInvalidValue;
  const DecodeAttention<T> a{static_cast<const T*>(l.q),
                             static_cast<const T*>(l.k),
                             static_cast<const T*>(l.v),
                             l.slot_stride,
                             l.position_stride,
                             l.head_stride,
                             l.seen,
                             l.rows,
                             l.heads,
                             l.kv_heads,
                             l.dim,
                             l.scale,
                             l.splits,
                             static_cast<T*>(l.out),
                             l.mixed,
                             l.largest,
                             l.sums};
  switch (l.dim) {
    case 64:
      return launch_dim<64>(a, stream);
    case 80:
      return launch_dim<80>(a, stream);
    case 96:
      return launch_dim<96>(a, stream);
    case 128:
      return launch_dim<128>(a, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t launch_decode_attention(const DecodeLaunch& launch, cudaStream_t stream) {
  if (launch.rows == 0) return cudaSuccess;
  return launch.type == StoredType::kFloat32 ? launch_type<float>(launch, stream)
                                             : launch_type<BFloat16>(launch, stream);
}

}  // namespace evalcar::kernels
