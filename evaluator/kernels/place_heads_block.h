// From a row's fused projection to queries that are ready and keys and values in the slot cache:
// what a block of threads does, for the GPU and for a test without one. C++17, for nvcc.
//
// kLanesOfHead neighbouring threads take one head of one row: they read it once for the sum of its
// squares (where it has a norm), and once more, from the nearest cache, to write it where it
// belongs. Between two operations that ATen would round to the stored type it is rounded here, too:
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

/// A thread's register.
struct PlaceOwn {
  float squares;
};

/// The kHeadsOfBlock tasks of block `number`.
template <typename T, typename Block>
EVALCAR_DEVICE void place_heads_of_block(const PlaceHeads<T>& p, std::int64_t number,
                                         Block& block) {
  const auto task_of = [number](int thread) {
    return number * kHeadsOfBlock + thread / kLanesOfHead;
  };
  const std::int64_t half = p.half;
  block.each_thread([&](int thread, PlaceOwn& own) {
    own.squares = 0;
    if (task_of(thread) >= p.tasks()) return;
    const PlaceTask<T> task = place_task(p, task_of(thread));
    if (task.norm == nullptr) return;
    for (std::int64_t at = thread % kLanesOfHead * kVector<T>; at < 2 * half;
         at += kLanesOfHead * kVector<T>) {
      float x[kVector<T>];
      load_vector(task.from + at, x);
      EVALCAR_UNROLL
      for (int e = 0; e < kVector<T>; ++e) own.squares += x[e] * x[e];
    }
  });
  block.template sum_lanes<kLanesOfHead>([](PlaceOwn& own) -> float& { return own.squares; });
  block.each_thread([&](int thread, PlaceOwn& own) {
    if (task_of(thread) >= p.tasks()) return;
    const PlaceTask<T> task = place_task(p, task_of(thread));
    const float scale = inverse_root(own.squares / static_cast<float>(2 * half) + p.eps);
    for (std::int64_t at = thread % kLanesOfHead * kVector<T>; at < half;
         at += kLanesOfHead * kVector<T>) {
      float first[kVector<T>], second[kVector<T>], cos[kVector<T>], sin[kVector<T>];
      load_vector(task.from + at, first);
      load_vector(task.from + half + at, second);
      if (task.norm != nullptr) {
        norm_numbers(first, task.norm + at, scale);
        norm_numbers(second, task.norm + half + at, scale);
      }
      if (task.turns) {
        load_vector(p.cos + task.row * half + at, cos);
        load_vector(p.sin + task.row * half + at, sin);
        EVALCAR_UNROLL
        for (int e = 0; e < kVector<T>; ++e) {
          const float a = first[e], b = second[e];
          first[e] = total(rounded<T>(product(a, cos[e])), -rounded<T>(product(b, sin[e])));
          second[e] = total(rounded<T>(product(b, cos[e])), rounded<T>(product(a, sin[e])));
        }
      }
      store_vector(first, task.to + at);
      store_vector(second, task.to + half + at);
    }
  });
}

}  // namespace evalcar::kernels
