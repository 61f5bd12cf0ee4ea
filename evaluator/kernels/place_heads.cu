// The grid of place_heads_block.h: a line of blocks over the heads of all rows.
#include "evaluator/kernels/kernel_launch.h"
#include "evaluator/kernels/place_heads_block.h"
#include "evaluator/kernels/place_heads_cuda.h"

namespace evalcar::kernels {
namespace {

static_assert(kMostHalfOfHead == 16 * kLanesOfHead * kMostPlaceVectors);

template <int kVectors, typename T>
__global__ void __launch_bounds__(kPlaceThreads) place_kernel(const PlaceHeads<T> p) {
  let_next_kernel_begin();
  wait_for_earlier_kernels();
  DeviceBlock<PlaceOwn<T, kVectors>> block;
  place_heads_of_block<kVectors>(p, blockIdx.x, block);
}

template <typename T>
cudaError_t launch_type(const PlaceLaunch& l, cudaStream_t stream) {
  for (const std::int64_t stride : {l.half, l.slot_stride, l.position_stride, l.head_stride})
    if (stride % kVector<T> != 0) return cudaErrorInvalidValue;
  for (const void* const address : {l.qkv, l.q_norm, l.k_norm, l.cos, l.sin})
    if (!is_at_boundary(address)) return cudaErrorInvalidValue;
  for (const void* const address : {l.q, l.keys, l.values})
    if (!is_at_boundary(address)) return cudaErrorInvalidValue;
  const PlaceHeads<T> p{static_cast<const T*>(l.qkv),
                        static_cast<const T*>(l.q_norm),
                        static_cast<const T*>(l.k_norm),
                        l.eps,
                        static_cast<const T*>(l.cos),
                        static_cast<const T*>(l.sin),
                        l.slots,
                        l.places,
                        l.rows,
                        l.heads,
                        l.kv_heads,
                        l.half,
                        static_cast<T*>(l.q),
                        static_cast<T*>(l.keys),
                        static_cast<T*>(l.values),
                        l.slot_stride,
                        l.position_stride,
                        l.head_stride};
  const std::int64_t blocks = (p.tasks() + kHeadsOfBlock - 1) / kHeadsOfBlock;
  if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
  const auto grid = static_cast<unsigned>(blocks);
  switch (place_vectors<T>(p.half)) {
    case 1:
      return launch(place_kernel<1, T>, grid, kPlaceThreads, stream, p);
    case 2:
      return launch(place_kernel<2, T>, grid, kPlaceThreads, stream, p);
    case 3:
    case kMostPlaceVectors:
      return launch(place_kernel<kMostPlaceVectors, T>, grid, kPlaceThreads, stream, p);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t launch_place_heads(const PlaceLaunch& launch, cudaStream_t stream) {
  if (launch.rows == 0) return cudaSuccess;
  return launch.type == StoredType::kFloat32 ? launch_type<float>(launch, stream)
                                             : launch_type<BFloat16>(launch, stream);
}

}  // namespace evalcar::kernels
