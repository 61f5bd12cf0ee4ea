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
// Four neighbouring threads share a key: each multiplies every fourth vector of it. Then each
// thread has one vector of every value and goes over a stripe of the keys; the stripes are added up
// at the end. Both read rows of the cache in whole 32-byte sectors, straight into registers.
#pragma once

#include <cstdint>

#include "evaluator/kernels/device_numbers.h"
#include "evaluator/kernels/thread_block.h"

namespace evalcar::kernels {

constexpr int kDecodeThreads = 128;
constexpr int kSplitKeys = 128;
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
/// How many heads a block takes, of a group of so many: 1, 2, 4 or kMostGroup.
constexpr int heads_of_block(std::int64_t group) {
  return group <= 1 ? 1 : group <= 2 ? 2 : group <= 4 ? 4 : kMostGroup;
}

/// DecodeAttention::scale: the powers are of two.
inline float decode_scale(std::int64_t dim) {
  constexpr double kLog2OfE = 1.4426950408889634;
  return static_cast<float>(kLog2OfE / std::sqrt(static_cast<double>(dim)));
}

/// How a block's threads share the work.
template <typename T, int kDim, int kGroup>
struct DecodeShape {
  static constexpr int kVectors = kDim / kVector<T>;  // of a key
  static constexpr int kLanes = 4;                    // threads that share a key
  static constexpr int kVectorsOfLane = (kVectors + kLanes - 1) / kLanes;
  static constexpr int kKeysAtOnce = kDecodeThreads / kLanes;
  static constexpr int kKeysOfThread = kSplitKeys / kKeysAtOnce;
  static constexpr int kStripes = kDecodeThreads / kVectors;
  static constexpr int kKeysOfLane = kSplitKeys / kWarp;
  static constexpr int kWarps = kDecodeThreads / kWarp;
  // Shared memory: queries and scores; when they have served, the stripes' sums in their place.
  static constexpr int kScores = kGroup * kDim;
  static constexpr int kBefore = kScores + kSplitKeys * kGroup;
  static constexpr int kAfter = kStripes * kGroup * kDim;
  static constexpr int kTotals = kBefore > kAfter ? kBefore : kAfter;
  static constexpr int kShared = kTotals + 2 * kGroup;

  /// A thread's registers.
  struct Own {
    float scores[kKeysOfThread][kGroup];
    float powers[kKeysOfLane];
    float largest;
    float sum;
    float mixed[kGroup][kVector<T>];
  };
};

/// One split of a row for some of its heads, at most kGroup. shared: (DecodeShape::kShared), at a
/// 16-byte boundary.
template <typename T, int kDim, int kGroup, typename Block>
EVALCAR_DEVICE void attend_split(const DecodeAttention<T>& a, std::int64_t row,
                                 const HeadShare& heads, std::int64_t split, Block& block,
                                 float* shared) {
  using Shape = DecodeShape<T, kDim, kGroup>;
  using Own = typename Shape::Own;
  const KeyRange seen = a.seen[row];
  const std::int64_t from = seen.begin + split * kSplitKeys;
  if (from >= seen.end) return;  // this row has fewer splits than another
  const int count = static_cast<int>(seen.end - from < kSplitKeys ? seen.end - from : kSplitKeys);
  const std::int64_t place =
      row * a.slot_stride + from * a.position_stride + heads.kv_head * a.head_stride;
  const T* const k = a.k + place;
  const T* const v = a.v + place;
  const std::int64_t query = row * a.heads + heads.first;
  float* const scores = shared + Shape::kScores;  // (kSplitKeys, kGroup)
  float* const largest = shared + Shape::kTotals;
  float* const sums = largest + kGroup;

  block.each_thread([&](int thread, Own&) {
    for (int i = thread; i < kGroup * kDim; i += kDecodeThreads)
      shared[i] = i < heads.count * kDim ? widen(a.q[query * kDim + i]) : 0.0F;
  });

  block.each_thread([&](int thread, Own& own) {
    const int lane = thread % Shape::kLanes, first = thread / Shape::kLanes;
    EVALCAR_UNROLL
    for (int r = 0; r < Shape::kKeysOfThread; ++r) {
      EVALCAR_UNROLL
      for (int h = 0; h < kGroup; ++h) own.scores[r][h] = 0;
    }
    EVALCAR_UNROLL
    for (int i = 0; i < Shape::kVectorsOfLane; ++i) {
      const int vector = lane + i * Shape::kLanes;
      if (Shape::kVectors % Shape::kLanes != 0 && vector >= Shape::kVectors) continue;
      float keys[Shape::kKeysOfThread][kVector<T>] = {};
      EVALCAR_UNROLL
      for (int r = 0; r < Shape::kKeysOfThread; ++r) {
        const int key = first + r * Shape::kKeysAtOnce;
        if (key < count) load_vector(k + key * a.position_stride + vector * kVector<T>, keys[r]);
      }
      EVALCAR_UNROLL
      for (int h = 0; h < kGroup; ++h) {
        float q[kVector<T>];
        load_shared(shared + h * kDim + vector * kVector<T>, q);
        EVALCAR_UNROLL
        for (int r = 0; r < Shape::kKeysOfThread; ++r) {
          EVALCAR_UNROLL
          for (int e = 0; e < kVector<T>; ++e) own.scores[r][h] += q[e] * keys[r][e];
        }
      }
    }
  });
  EVALCAR_UNROLL
  for (int r = 0; r < Shape::kKeysOfThread; ++r) {
    EVALCAR_UNROLL
    for (int h = 0; h < kGroup; ++h) {
      block.template sum_lanes<Shape::kLanes>(
          [r, h](Own& own) -> float& { return own.scores[r][h]; });
    }
  }
  block.each_thread([&](int thread, Own& own) {
    const int lane = thread % Shape::kLanes, first = thread / Shape::kLanes;
    EVALCAR_UNROLL
    for (int r = 0; r < Shape::kKeysOfThread; ++r) {
      const int key = first + r * Shape::kKeysAtOnce;
      EVALCAR_UNROLL
      for (int h = 0; h < kGroup; ++h) {
        if (h % Shape::kLanes == lane)
          scores[key * kGroup + h] = key < count ? own.scores[r][h] * a.scale : -INFINITY;
      }
    }
  });

  // Scores to powers, a warp for each head.
  for (int first_of_warps = 0; first_of_warps < kGroup; first_of_warps += Shape::kWarps) {
    const auto head_of = [&](int thread) { return first_of_warps + thread / kWarp; };
    block.each_thread([&](int thread, Own& own) {
      own.largest = -INFINITY;
      if (head_of(thread) >= kGroup) return;
      EVALCAR_UNROLL
      for (int i = 0; i < Shape::kKeysOfLane; ++i) {
        own.powers[i] = scores[(thread % kWarp + i * kWarp) * kGroup + head_of(thread)];
        own.largest = larger(own.largest, own.powers[i]);
      }
    });
    block.template max_lanes<kWarp>([](Own& own) -> float& { return own.largest; });
    block.each_thread([&](int thread, Own& own) {
      own.sum = 0;
      if (head_of(thread) >= kGroup) return;
      EVALCAR_UNROLL
      for (int i = 0; i < Shape::kKeysOfLane; ++i) {
        const float power = power_of_two(own.powers[i] - base_of(own.largest));
        scores[(thread % kWarp + i * kWarp) * kGroup + head_of(thread)] = power;
        own.sum += power;
      }
    });
    block.template sum_lanes<kWarp>([](Own& own) -> float& { return own.sum; });
    block.each_thread([&](int thread, Own& own) {
      if (thread % kWarp != 0 || head_of(thread) >= kGroup) return;
      largest[head_of(thread)] = own.largest;
      sums[head_of(thread)] = own.sum;
    });
  }

  block.each_thread([&](int thread, Own& own) {
    const int stripe = thread / Shape::kVectors, vector = thread % Shape::kVectors;
    EVALCAR_UNROLL
    for (int h = 0; h < kGroup; ++h) {
      EVALCAR_UNROLL
      for (int e = 0; e < kVector<T>; ++e) own.mixed[h][e] = 0;
    }
    if (stripe >= Shape::kStripes) return;
    EVALCAR_UNROLL_BY_4
    for (int key = stripe; key < count; key += Shape::kStripes) {
      float value[kVector<T>], powers[kGroup];
      load_vector(v + key * a.position_stride + vector * kVector<T>, value);
      load_shared(scores + key * kGroup, powers);
      EVALCAR_UNROLL
      for (int h = 0; h < kGroup; ++h) {
        EVALCAR_UNROLL
        for (int e = 0; e < kVector<T>; ++e) own.mixed[h][e] += powers[h] * value[e];
      }
    }
  });
  block.each_thread([&](int thread, Own& own) {
    const int stripe = thread / Shape::kVectors, vector = thread % Shape::kVectors;
    if (stripe >= Shape::kStripes) return;
    EVALCAR_UNROLL
    for (int h = 0; h < kGroup; ++h) {
      float* const to = shared + (stripe * kGroup + h) * kDim + vector * kVector<T>;
      EVALCAR_UNROLL
      for (int e = 0; e < kVector<T>; e += 4) {
        const float four[4] = {own.mixed[h][e], own.mixed[h][e + 1], own.mixed[h][e + 2],
                               own.mixed[h][e + 3]};
        store_vector(four, to + e);
      }
    }
  });

  const bool is_whole = splits_of(seen.end - seen.begin) == 1;
  block.each_thread([&](int thread, Own&) {
    for (int i = thread; i < heads.count * kDim; i += kDecodeThreads) {
      float sum = 0;
      EVALCAR_UNROLL
      for (int stripe = 0; stripe < Shape::kStripes; ++stripe)
        sum += shared[stripe * kGroup * kDim + i];
      const int h = i / kDim;
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
