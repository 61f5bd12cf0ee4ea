// SwiGLU's two halves to one: what a thread does, for the GPU and for a test without one. C++17,
// for nvcc.
#pragma once

#include <cstdint>

#include "evaluator/kernels/device_numbers.h"
#include "evaluator/kernels/thread_block.h"

namespace evalcar::kernels {

template <typename T>
struct Swiglu {
  const T* both;  ///< (rows, 2 · width): the gate, then what it lets through
  T* out;         ///< (rows, width)
  std::int64_t rows, width;
};

EVALCAR_ON_BOTH float silu(float x) {
#ifdef __CUDA_ARCH__
  return x / (1 + expf(-x));
#else
  return x / (1 + std::exp(-x));
#endif
}

/// Numbers [number · kCount, (number + 1) · kCount) of out, in whole vectors or one by one; a row
/// holds a multiple of kCount. Rounded between the operations, as ATen's are.
template <int kCount, typename T>
EVALCAR_ON_BOTH void gate_numbers(const Swiglu<T>& s, std::int64_t number) {
  static_assert(kCount == 1 || kCount == kVector<T>);
  const std::int64_t row = number * kCount / s.width, column = number * kCount % s.width;
  const T* const from = s.both + row * 2 * s.width + column;
  T* const to = s.out + row * s.width + column;
  float gate[kCount], up[kCount];
  load_numbers(from, gate);
  load_numbers(from + s.width, up);
  EVALCAR_UNROLL
  for (int e = 0; e < kCount; ++e) gate[e] = rounded<T>(silu(gate[e])) * up[e];
  store_numbers(gate, to);
}

}  // namespace evalcar::kernels
