// From a row's fused projection to queries that are ready and keys and values in the slot cache:
// what a block of threads does, for the GPU and for a test without one. C++17, for nvcc.
//
// kLanesOfHead neighbouring threads take one head of one row: each asks for all that it needs of it
// at once, and keeps it in registers until the sum of the squares is known (where the head has a
// norm). Between two operations that ATen would round to the stored type it is rounded here, too:
// without a norm the bits are ATen's, with one up to the order of the squares' sum.
#pragma once

#include <cstdint>

#include "evaluator/kernels/device_numbers.h"
#include "evaluator/kernels/rms_norm_block.h"
#include "evaluator/kernels/thread_block.h"

namespace evalcar::kernels {

constexpr int kPlaceThreads = 128;
constexpr int kLanesOfHead = 8;
constexpr int kHeadsOfBlock = kPlaceThreads / kLanesOfHead;

/// Strides count elements. All vectors of kVector<T> numbers lie at 16-byte boundaries.
template <typename T>
struct PlaceHeads {
  const T* qkv;     ///< (rows, heads + 2 · kv_heads, 2 · half): queries, keys, values
  const T* q_norm;  ///< (2 · half), or null: no norm
  const T* k_norm;
  float eps;
  const T* cos;                ///< (rows, half)
  const T* sin;                ///< (rows, half)
  const std::int64_t* slots;   ///< (rows): where each row goes
  const std::int64_t* places;  ///< (rows): its position in its slot
  std::int64_t rows, heads, kv_heads, half;
  T* q;     ///< (rows, heads, 2 · half)
  T* keys;  ///< of slot 0, position 0
  T* values;
  std::int64_t slot_stride, position_stride, head_stride;

  EVALCAR_ON_BOTH std::int64_t heads_of_row() const { return heads + 2 * kv_heads; }
  EVALCAR_ON_BOTH std::int64_t tasks() const { return rows * heads_of_row(); }
};

/// One head of one row.
template <typename T>
struct PlaceTask {
  const T* from;
  const T* norm;  ///< null: none
  bool turns;
  std::int64_t row;
  T* to;
};
template <typename T>
EVALCAR_ON_BOTH PlaceTask<T> place_task(const PlaceHeads<T>& p, std::int64_t number) {
  const std::int64_t row = number / p.heads_of_row(), head = number % p.heads_of_row();
  const T* const from = p.qkv + number * 2 * p.half;
  if (head < p.heads) return {from, p.q_norm, true, row, p.q + (row * p.heads + head) * 2 * p.half};
  const bool is_key = head < p.heads + p.kv_heads;
  const std::int64_t kv_head = head - p.heads - (is_key ? 0 : p.kv_heads);
  const std::int64_t place =
      p.slots[row] * p.slot_stride + p.places[row] * p.position_stride + kv_head * p.head_stride;
  if (is_key) return {from, p.k_norm, true, row, p.keys + place};
  return {from, nullptr, false, row, p.values + place};
}

/// Vectors of half a head that a lane takes at most: the kernel is there for 1, 2 and 4.
template <typename T>
EVALCAR_ON_BOTH std::int64_t place_vectors(std::int64_t half) {
  constexpr std::int64_t kOfLanes = std::int64_t{kLanesOfHead} * kVector<T>;
  return (half + kOfLanes - 1) / kOfLanes;
}
constexpr int kMostPlaceVectors = 4;

/// A thread's registers: of either half of the head numbers, weights and turns.
template <typename T, int kVectors>
struct PlaceOwn {
  PlaceTask<T> task;
  Words x[2][kVectors];
  Words norm[2][kVectors];
  Words cos[kVectors];
  Words sin[kVectors];
  float squares;
};

/// The kHeadsOfBlock tasks of block `number`; place_vectors() is at most kVectors.
template <int kVectors, typename T, typename Block>
EVALCAR_DEVICE void place_heads_of_block(const PlaceHeads<T>& p, std::int64_t number,
                                         Block& block) {
  using Own = PlaceOwn<T, kVectors>;
  const auto has_task = [&](int thread) {
    return number * kHeadsOfBlock + thread / kLanesOfHead < p.tasks();
  };
  // Where vector `i` of a lane begins, in either half.
  const auto begin_of = [](int thread, int i) {
    return std::int64_t{thread % kLanesOfHead + i * kLanesOfHead} * kVector<T>;
  };
  block.each_thread([&](int thread, Own& own) {
    own.squares = 0;
    if (!has_task(thread)) return;
    own.task = place_task(p, number * kHeadsOfBlock + thread / kLanesOfHead);
    const std::int64_t turn = own.task.row * p.half;
    EVALCAR_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      const std::int64_t at = begin_of(thread, i);
      if (at >= p.half) continue;
      EVALCAR_UNROLL
      for (int side = 0; side < 2; ++side) {
        own.x[side][i] = load_words(own.task.from + side * p.half + at);
        if (own.task.norm != nullptr)
          own.norm[side][i] = load_words(own.task.norm + side * p.half + at);
      }
      if (own.task.turns) {
        own.cos[i] = load_words(p.cos + turn + at);
        own.sin[i] = load_words(p.sin + turn + at);
      }
    }
    if (own.task.norm == nullptr) return;
    EVALCAR_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      if (begin_of(thread, i) >= p.half) continue;
      EVALCAR_UNROLL
      for (int side = 0; side < 2; ++side) {
        float x[kVector<T>];
        widen_words<T>(own.x[side][i], x);
        EVALCAR_UNROLL
        for (int e = 0; e < kVector<T>; ++e) own.squares += x[e] * x[e];
      }
    }
  });
  block.template sum_lanes<kLanesOfHead>([](Own& own) -> float& { return own.squares; });
  block.each_thread([&](int thread, Own& own) {
    if (!has_task(thread)) return;
    const float scale = inverse_root(own.squares / static_cast<float>(2 * p.half) + p.eps);
    EVALCAR_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      const std::int64_t at = begin_of(thread, i);
      if (at >= p.half) continue;
      float x[2][kVector<T>];
      EVALCAR_UNROLL
      for (int side = 0; side < 2; ++side) {
        widen_words<T>(own.x[side][i], x[side]);
        if (own.task.norm == nullptr) continue;
        float weights[kVector<T>];
        widen_words<T>(own.norm[side][i], weights);
        norm_by<T>(x[side], weights, scale);
      }
      if (own.task.turns) {
        float cos[kVector<T>], sin[kVector<T>];
        widen_words<T>(own.cos[i], cos);
        widen_words<T>(own.sin[i], sin);
        EVALCAR_UNROLL
        for (int e = 0; e < kVector<T>; ++e) {
          const float a = x[0][e], b = x[1][e];
          x[0][e] = total(rounded<T>(product(a, cos[e])), -rounded<T>(product(b, sin[e])));
          x[1][e] = total(rounded<T>(product(b, cos[e])), rounded<T>(product(a, sin[e])));
        }
      }
      store_vector(x[0], own.task.to + at);
      store_vector(x[1], own.task.to + p.half + at);
    }
  });
}

}  // namespace evalcar::kernels
