#include "tests/unit/kernels/emulated_decode_attention.h"

#include <ATen/ops/full_like.h>

#include <limits>
#include <vector>

#include "evaluator/kernels/decode_attention.h"
#include "evaluator/kernels/decode_attention_threads.h"
#include "evaluator/kernels/decode_attention_tiles.h"

namespace evalcar::testing {
namespace {

using namespace evalcar::kernels;

template <int kDim, int kGroup>
struct Threads {
  using Shape = ThreadShape<kDim, kGroup>;
  static constexpr int kHeads = kGroup;
  static constexpr auto kAttend =
      attend_by_threads<kDim, kGroup, EmulatedBlock<typename Shape::Own>>;
};

template <int kDim>
struct Tiles {
  using Shape = TileShape<kDim>;
  static constexpr int kHeads = kMostGroup;
  static constexpr auto kAttend = attend_by_tiles<kDim, EmulatedBlock<typename Shape::Own>>;
};

template <typename Way, typename T>
void run_blocks(const DecodeAttention<T>& a, ThreadOrder order) {
  using Shape = typename Way::Shape;
  const std::int64_t shares = head_shares(a.heads, a.kv_heads, Way::kHeads);
  for (std::int64_t row = 0; row < a.rows; ++row) {
    for (std::int64_t share = 0; share < shares; ++share) {
      for (std::int64_t split = 0; split < a.splits; ++split) {
        alignas(16) float shared[Shape::kShared];
        std::fill(std::begin(shared), std::end(shared), std::numeric_limits<float>::quiet_NaN());
        EmulatedBlock<typename Shape::Own> block(kDecodeThreads, order);
        Way::kAttend(a, row, head_share(a.heads, a.kv_heads, Way::kHeads, share), split, block,
                     shared);
      }
    }
  }
  for (std::int64_t i = 0; i < a.rows * a.heads * a.dim; ++i) merge_splits(a, i);
}

template <int kDim>
void run_dim(const DecodeAttention<BFloat16>& a, ThreadOrder order) {
  run_blocks<Tiles<kDim>>(a, order);
}

template <int kDim>
void run_dim(const DecodeAttention<float>& a, ThreadOrder order) {
  switch (heads_of_block(a.heads / a.kv_heads)) {
    case 1:
      return run_blocks<Threads<kDim, 1>>(a, order);
    case 2:
      return run_blocks<Threads<kDim, 2>>(a, order);
    case 4:
      return run_blocks<Threads<kDim, 4>>(a, order);
    default:
      return run_blocks<Threads<kDim, kMostGroup>>(a, order);
  }
}

template <typename T>
void run_type(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
              const DecodeSight& sight, const at::Tensor& out, ThreadOrder order) {
  const std::int64_t splits = splits_of(sight.most_keys);
  const auto parts = static_cast<std::size_t>(q.size(0) * q.size(1) * splits);
  const float unset = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> mixed(parts * static_cast<std::size_t>(q.size(2)), unset);
  std::vector<float> largest(parts, unset), sums(parts, unset);
  const auto* const seen = sight.ranges.const_data_ptr<std::int64_t>();
  const DecodeAttention<T> a{.q = static_cast<const T*>(q.const_data_ptr()),
                             .k = static_cast<const T*>(keys.const_data_ptr()),
                             .v = static_cast<const T*>(values.const_data_ptr()),
                             .slot_stride = keys.stride(0),
                             .position_stride = keys.stride(1),
                             .head_stride = keys.stride(2),
                             .seen = reinterpret_cast<const KeyRange*>(seen),
                             .rows = q.size(0),
                             .heads = q.size(1),
                             .kv_heads = keys.size(2),
                             .dim = q.size(2),
                             .scale = decode_scale(q.size(2)),
                             .splits = splits,
                             .out = static_cast<T*>(out.mutable_data_ptr()),
                             .mixed = mixed.data(),
                             .largest = largest.data(),
                             .sums = sums.data()};
  switch (a.dim) {
    case 64:
      return run_dim<64>(a, order);
    case 80:
      return run_dim<80>(a, order);
    case 96:
      return run_dim<96>(a, order);
    default:
      return run_dim<128>(a, order);
  }
}

}  // namespace

at::Tensor emulated_decode_attention(const at::Tensor& q, const at::Tensor& keys,
                                     const at::Tensor& values, std::span<const SeenKeys> seen,
                                     ThreadOrder order) {
  const at::Tensor rows = q.contiguous();
  const at::Tensor out = at::full_like(rows, std::numeric_limits<double>::quiet_NaN());
  const DecodeSight sight = decode_sight(seen, at::kCPU);
  if (q.scalar_type() == at::kFloat) {
    run_type<float>(rows, keys, values, sight, out, order);
  } else {
    run_type<BFloat16>(rows, keys, values, sight, out, order);
  }
  return out;
}

}  // namespace evalcar::testing
