// The rotary turn of two vectors of a head: what a thread does, for the GPU and for a test without
// one. C++17, for nvcc.
//
// That is a vector of a head's first half and the one of its second half that is turned with
// it: each number is read and written once, where ATen's dozen operations in float32 do it some
// twenty times. Rounded as those are: the bits are ATen's.
#pragma once

#include <cstdint>

#include "evaluator/kernels/device_numbers.h"
#include "evaluator/kernels/thread_block.h"

namespace evalcar::kernels {

/// Strides count elements. All vectors of kVector<T> numbers lie at 16-byte boundaries.
template <typename T>
struct RotateHeads {
  const T* x;  ///< (rows, heads, 2 · half)
  std::int64_t row_stride, head_stride;
  const float* cos;  ///< (rows, half)
  const float* sin;  ///< (rows, half)
  T* y;              ///< (rows, heads, 2 · half), contiguous
  std::int64_t rows, heads, half;

  EVALCAR_ON_BOTH std::int64_t vectors_of_half() const { return half / kVector<T>; }
  /// At most INT32_MAX.
  EVALCAR_ON_BOTH std::int64_t tasks() const { return rows * heads * vectors_of_half(); }
};

/// Task `task` of tasks().
template <typename T>
EVALCAR_ON_BOTH void turn_vector(const RotateHeads<T>& r, std::uint32_t task) {
  constexpr int kCount = kVector<T>;
  // In 32 bits: a GPU divides those several times as fast.
  const auto vectors = static_cast<std::uint32_t>(r.vectors_of_half());
  const auto heads = static_cast<std::uint32_t>(r.heads);
  const std::uint32_t head = task / vectors;
  const std::int64_t at = std::int64_t{task % vectors} * kCount;
  const std::int64_t row = head / heads;
  const T* const from = r.x + row * r.row_stride + head % heads * r.head_stride + at;
  T* const to = r.y + std::int64_t{head} * 2 * r.half + at;
  float first[kCount], second[kCount], cos[kCount], sin[kCount];
  load_vector(from, first);
  load_vector(from + r.half, second);
  load_shared(r.cos + row * r.half + at, cos);
  load_shared(r.sin + row * r.half + at, sin);
  EVALCAR_UNROLL
  for (int e = 0; e < kCount; ++e) {
    const float a = first[e], b = second[e];
    first[e] = total(product(a, cos[e]), -product(b, sin[e]));
    second[e] = total(product(b, cos[e]), product(a, sin[e]));
  }
  store_vector(first, to);
  store_vector(second, to + r.half);
}

}  // namespace evalcar::kernels
