// A split of decode_attention_block.h by the threads' own multiplications, for float32. C++17, for
// nvcc.
//
// Four neighbouring threads share a key: each multiplies every fourth vector of it. Then each
// thread has one vector of every value and goes over a stripe of the keys; the stripes are added up
// at the end. Both read rows of the cache in whole 32-byte sectors, straight into registers.
#pragma once

#include <cstdint>

#include "evaluator/kernels/decode_attention_block.h"

namespace evalcar::kernels {

/// How many heads a block takes, of a group of so many: 1, 2, 4 or kMostGroup.
constexpr int heads_of_block(std::int64_t group) {
  return group <= 1 ? 1 : group <= 2 ? 2 : group <= 4 ? 4 : kMostGroup;
}

/// How a block's threads share the work.
template <int kDim, int kGroup>
struct ThreadShape {
  static constexpr int kVectors = kDim / kVector<float>;  // of a key
  static constexpr int kLanes = 4;                        // threads that share a key
  static constexpr int kVectorsOfLane = (kVectors + kLanes - 1) / kLanes;
  static constexpr int kKeysAtOnce = kDecodeThreads / kLanes;
  static constexpr int kKeysOfThread = kSplitKeys / kKeysAtOnce;
  static constexpr int kStripes = kDecodeThreads / kVectors;
  // Shared memory: queries and scores; when they have served, the stripes' sums in their place.
  static constexpr int kScores = kGroup * kDim;
  static constexpr int kBefore = kScores + kSplitKeys * kGroup;
  static constexpr int kAfter = kStripes * kGroup * kDim;
  static constexpr int kTotals = kBefore > kAfter ? kBefore : kAfter;
  static constexpr int kShared = kTotals + 2 * kGroup;

  /// A thread's registers.
  struct Own {
    float scores[kKeysOfThread][kGroup];
    LanePowers lane;
    float mixed[kGroup][kVector<float>];
  };
};

/// One split of a row for some of its heads, at most kGroup. shared: (ThreadShape::kShared), at a
/// 16-byte boundary.
template <int kDim, int kGroup, typename Block>
EVALCAR_DEVICE void attend_by_threads(const DecodeAttention<float>& a, std::int64_t row,
                                      const HeadShare& heads, std::int64_t split, Block& block,
                                      float* shared) {
  using Shape = ThreadShape<kDim, kGroup>;
  using Own = typename Shape::Own;
  const SplitKeys present = split_keys(a, row, heads.kv_head, split);
  const int count = present.count;
  if (count == 0) return;  // this row has fewer splits than another
  const float* const k = a.k + present.place;
  const float* const v = a.v + present.place;
  const std::int64_t query = row * a.heads + heads.first;
  float* const scores = shared + Shape::kScores;  // (kSplitKeys, kGroup)
  float* const largest = shared + Shape::kTotals;
  float* const sums = largest + kGroup;

  block.each_thread([&](int thread, Own&) {
    for (int i = thread; i < kGroup * kDim; i += kDecodeThreads)
      shared[i] = i < heads.count * kDim ? a.q[query * kDim + i] : 0.0F;
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
      float keys[Shape::kKeysOfThread][kVector<float>] = {};
      EVALCAR_UNROLL
      for (int r = 0; r < Shape::kKeysOfThread; ++r) {
        const int key = first + r * Shape::kKeysAtOnce;
        if (key < count)
          load_vector(k + key * a.position_stride + vector * kVector<float>, keys[r]);
      }
      EVALCAR_UNROLL
      for (int h = 0; h < kGroup; ++h) {
        float q[kVector<float>];
        load_shared(shared + h * kDim + vector * kVector<float>, q);
        EVALCAR_UNROLL
        for (int r = 0; r < Shape::kKeysOfThread; ++r) {
          EVALCAR_UNROLL
          for (int e = 0; e < kVector<float>; ++e) own.scores[r][h] += q[e] * keys[r][e];
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

  scores_to_powers<kGroup, Own>(heads.count, block, scores, largest, sums);

  block.each_thread([&](int thread, Own& own) {
    const int stripe = thread / Shape::kVectors, vector = thread % Shape::kVectors;
    EVALCAR_UNROLL
    for (int h = 0; h < kGroup; ++h) {
      EVALCAR_UNROLL
      for (int e = 0; e < kVector<float>; ++e) own.mixed[h][e] = 0;
    }
    if (stripe >= Shape::kStripes) return;
    EVALCAR_UNROLL_BY_4
    for (int key = stripe; key < count; key += Shape::kStripes) {
      float value[kVector<float>], powers[kGroup];
      load_vector(v + key * a.position_stride + vector * kVector<float>, value);
      load_shared(scores + key * kGroup, powers);
      EVALCAR_UNROLL
      for (int h = 0; h < kGroup; ++h) {
        EVALCAR_UNROLL
        for (int e = 0; e < kVector<float>; ++e) own.mixed[h][e] += powers[h] * value[e];
      }
    }
  });
  block.each_thread([&](int thread, Own& own) {
    const int stripe = thread / Shape::kVectors, vector = thread % Shape::kVectors;
    if (stripe >= Shape::kStripes) return;
    EVALCAR_UNROLL
    for (int h = 0; h < kGroup; ++h) {
      float* const to = shared + (stripe * kGroup + h) * kDim + vector * kVector<float>;
      EVALCAR_UNROLL
      for (int e = 0; e < kVector<float>; e += 4) {
        const float four[4] = {own.mixed[h][e], own.mixed[h][e + 1], own.mixed[h][e + 2],
                               own.mixed[h][e + 3]};
        store_vector(four, to + e);
      }
    }
  });

  leave_split<kDim, float, Own>(a, row, heads, split, largest, sums, block, [&](int h, int d) {
    float sum = 0;
    EVALCAR_UNROLL
    for (int stripe = 0; stripe < Shape::kStripes; ++stripe)
      sum += shared[(stripe * kGroup + h) * kDim + d];
    return sum;
  });
}

}  // namespace evalcar::kernels
