// Attention of one new row of each slot over the slot's keys ("split KV", as FlashDecoding cuts
// it): what a block of threads does, for the GPU and for a test without one. C++17, for nvcc.
//
// The keys that a row sees are cut into splits of kSplitKeys; how many there are depends on the row
// alone, and so do its bits. A block takes one split of one key head for up to kMostGroup of the
// query heads that share it, so a key or value is read once for all of them. Its scores fit into
// shared memory: the softmax of a split is exact, and what is left over is its largest score, the
// sum of its powers, and the values mixed by them. A second pass brings the splits of a row
// together in their order (merge_splits).
//
// How a block multiplies is said for float32 in decode_attention_threads.h, for bfloat16 in
// decode_attention_tiles.h; here is what both share.
#pragma once

#include <cstdint>

#include "evaluator/kernels/device_numbers.h"
#include "evaluator/kernels/thread_block.h"

namespace evalcar::kernels {

constexpr int kDecodeThreads = 256;
constexpr int kSplitKeys = 256;
constexpr int kMostGroup = 8;

/// Positions [begin, end) of a slot: what its row sees, at least one.
struct KeyRange {
  std::int64_t begin;
  std::int64_t end;
};

EVALCAR_ON_BOTH std::int64_t splits_of(std::int64_t keys) {
  return (keys + kSplitKeys - 1) / kSplitKeys;
}

/// Strides count elements. A head's `dim` numbers are contiguous and start at a 16-byte boundary.
/// Head h of q reads key head h · kv_heads / heads. Row i attends to slot i.
template <typename T>
struct DecodeAttention {
  const T* q;  ///< (rows, heads, dim), contiguous
  const T* k;  ///< of slot 0, position 0
  const T* v;  ///< with the strides of k
  std::int64_t slot_stride, position_stride, head_stride;
  const KeyRange* seen;  ///< (rows)
  std::int64_t rows, heads, kv_heads, dim;
  float scale;          ///< of the scores, times log2(e)
  std::int64_t splits;  ///< of the row that sees most
  T* out;               ///< as q
  /// What the splits of a row of more than one leave: (rows, heads, splits, dim), and twice (rows,
  /// heads, splits).
  float* mixed;
  float* largest;
  float* sums;
};

/// Query heads [first, first + count), which read `kv_head`: a block's share.
struct HeadShare {
  std::int64_t kv_head;
  std::int64_t first;
  int count;
};
/// The heads of blocks that take up to `most` each: so many blocks for a split of a row.
EVALCAR_ON_BOTH std::int64_t head_shares(std::int64_t heads, std::int64_t kv_heads, int most) {
  return kv_heads * ((heads / kv_heads + most - 1) / most);
}
EVALCAR_ON_BOTH HeadShare head_share(std::int64_t heads, std::int64_t kv_heads, int most,
                                     std::int64_t number) {
  const std::int64_t group = heads / kv_heads, shares = (group + most - 1) / most;
  const std::int64_t kv_head = number / shares, begin = number % shares * most;
  const std::int64_t left = group - begin;
  return {kv_head, kv_head * group + begin, static_cast<int>(left < most ? left : most)};
}
/// DecodeAttention::scale: the powers are of two.
inline float decode_scale(std::int64_t dim) {
  constexpr double kLog2OfE = 1.4426950408889634;
  return static_cast<float>(kLog2OfE / std::sqrt(static_cast<double>(dim)));
}

/// What a split of a row sees of one key head.
struct SplitKeys {
  std::int64_t place;  ///< of its first key, counted from slot 0, position 0
  int count;           ///< 0: the row has fewer splits
};
template <typename T>
EVALCAR_ON_BOTH SplitKeys split_keys(const DecodeAttention<T>& a, std::int64_t row,
                                     std::int64_t kv_head, std::int64_t split) {
  const KeyRange seen = a.seen[row];
  const std::int64_t from = seen.begin + split * kSplitKeys, left = seen.end - from;
  const std::int64_t count = left <= 0 ? 0 : left < kSplitKeys ? left : kSplitKeys;
  return {row * a.slot_stride + from * a.position_stride + kv_head * a.head_stride,
          static_cast<int>(count)};
}

/// Scores of a head in the registers of one lane, and what it finds in them.
struct LanePowers {
  float powers[kSplitKeys / kWarp];
  float largest;
  float sum;
};

/// Scores (kSplitKeys, kGroup) in shared memory become powers of two, for the first `heads` heads;
/// largest, sums: (kGroup). A warp takes a head. Own has a LanePowers `lane`.
template <int kGroup, typename Own, typename Block>
EVALCAR_DEVICE void scores_to_powers(int heads, Block& block, float* scores, float* largest,
                                     float* sums) {
  constexpr int kWarps = kDecodeThreads / kWarp, kKeysOfLane = kSplitKeys / kWarp;
  for (int first_of_warps = 0; first_of_warps < heads; first_of_warps += kWarps) {
    const auto head_of = [&](int thread) { return first_of_warps + thread / kWarp; };
    block.each_thread([&](int thread, Own& own) {
      own.lane.largest = -INFINITY;
      if (head_of(thread) >= heads) return;
      EVALCAR_UNROLL
      for (int i = 0; i < kKeysOfLane; ++i) {
        own.lane.powers[i] = scores[(thread % kWarp + i * kWarp) * kGroup + head_of(thread)];
        own.lane.largest = larger(own.lane.largest, own.lane.powers[i]);
      }
    });
    block.template max_lanes<kWarp>([](Own& own) -> float& { return own.lane.largest; });
    block.each_thread([&](int thread, Own& own) {
      own.lane.sum = 0;
      if (head_of(thread) >= heads) return;
      EVALCAR_UNROLL
      for (int i = 0; i < kKeysOfLane; ++i) {
        const float power = power_of_two(own.lane.powers[i] - base_of(own.lane.largest));
        scores[(thread % kWarp + i * kWarp) * kGroup + head_of(thread)] = power;
        own.lane.sum += power;
      }
    });
    block.template sum_lanes<kWarp>([](Own& own) -> float& { return own.lane.sum; });
    block.each_thread([&](int thread, Own& own) {
      if (thread % kWarp != 0 || head_of(thread) >= heads) return;
      largest[head_of(thread)] = own.lane.largest;
      sums[head_of(thread)] = own.lane.sum;
    });
  }
}

/// What a split leaves: `mixed_of(h, d)` is number d of head h of the block's, not yet divided.
template <int kDim, typename T, typename Own, typename Block, typename Mixed>
EVALCAR_DEVICE void leave_split(const DecodeAttention<T>& a, std::int64_t row,
                                const HeadShare& heads, std::int64_t split, const float* largest,
                                const float* sums, Block& block, Mixed mixed_of) {
  const std::int64_t query = row * a.heads + heads.first;
  const bool is_whole = splits_of(a.seen[row].end - a.seen[row].begin) == 1;
  block.each_thread([&](int thread, Own&) {
    for (int i = thread; i < heads.count * kDim; i += kDecodeThreads) {
      const int h = i / kDim;
      const float sum = mixed_of(h, i % kDim);
      const std::int64_t part = (query + h) * a.splits + split;
      if (is_whole) {
        a.out[query * kDim + i] = narrow<T>(sum / sums[h]);
        continue;
      }
      a.mixed[part * kDim + i % kDim] = sum;
      if (i % kDim == 0) {
        a.largest[part] = largest[h];
        a.sums[part] = sums[h];
      }
    }
  });
}

/// Element `index` of out, where its row has more than one split.
template <typename T>
EVALCAR_ON_BOTH void merge_splits(const DecodeAttention<T>& a, std::int64_t index) {
  const std::int64_t head = index / a.dim;  // of all rows
  const KeyRange seen = a.seen[head / a.heads];
  const std::int64_t count = splits_of(seen.end - seen.begin);
  if (count <= 1) return;
  const std::int64_t first = head * a.splits;
  float largest = -INFINITY;
  for (std::int64_t i = 0; i < count; ++i) largest = larger(largest, a.largest[first + i]);
  float sum = 0, mixed = 0;
  EVALCAR_UNROLL_BY_4
  for (std::int64_t i = 0; i < count; ++i) {
    const float share = power_of_two(a.largest[first + i] - base_of(largest));
    sum += share * a.sums[first + i];
    mixed += share * a.mixed[(first + i) * a.dim + index % a.dim];
  }
  a.out[index] = narrow<T>(mixed / sum);
}

}  // namespace evalcar::kernels
