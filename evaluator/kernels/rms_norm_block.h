// A row divided by its root mean square: what a block of threads does, for the GPU and for a test
// without one. C++17, for nvcc.
//
// The block reads the row once for the sum of its squares, and once more, from the nearest cache,
// to write it. The five ATen operations that this replaces read and write it five times. The sum's
// order is fixed by the row's width alone.
#pragma once

#include <cstdint>

#include "evaluator/kernels/device_numbers.h"
#include "evaluator/kernels/thread_block.h"

namespace evalcar::kernels {

constexpr int kNormThreads = 256;
constexpr int kNormWarps = kNormThreads / kWarp;

template <typename T>
struct RmsNorm {
  const T* x;       ///< (rows, width)
  const T* weight;  ///< (width)
  T* y;             ///< (rows, width)
  std::int64_t rows, width;
  float eps;
};

/// A thread's register.
struct NormOwn {
  float squares;
};

EVALCAR_ON_BOTH float inverse_root(float x) {
#ifdef __CUDA_ARCH__
  return rsqrtf(x);
#else
  return 1 / std::sqrt(x);
#endif
}

/// x normalised and weighted, rounded after either as ATen's operations do.
template <typename T, int kCount>
EVALCAR_ON_BOTH void norm_by(float (&x)[kCount], const float (&weights)[kCount], float scale) {
  EVALCAR_UNROLL
  for (int e = 0; e < kCount; ++e)
    x[e] = rounded<T>(product(rounded<T>(product(x[e], scale)), weights[e]));
}
template <int kCount, typename T>
EVALCAR_ON_BOTH void norm_numbers(float (&x)[kCount], const T* weight, float scale) {
  float weights[kCount];
  load_numbers(weight, weights);
  norm_by<T>(x, weights, scale);
}

/// Row `number`, in whole vectors or one by one (kCount); the width is a multiple of kCount.
/// shared: (kNormWarps).
template <int kCount, typename T, typename Block>
EVALCAR_DEVICE void norm_row(const RmsNorm<T>& n, std::int64_t number, Block& block,
                             float* shared) {
  static_assert(kCount == 1 || kCount == kVector<T>);
  constexpr std::int64_t kStep = std::int64_t{kNormThreads} * kCount;
  const T* const from = n.x + number * n.width;
  T* const to = n.y + number * n.width;
  block.each_thread([&](int thread, NormOwn& own) {
    own.squares = 0;
    for (std::int64_t at = std::int64_t{thread} * kCount; at < n.width; at += kStep) {
      float x[kCount];
      load_numbers(from + at, x);
      EVALCAR_UNROLL
      for (int e = 0; e < kCount; ++e) own.squares += x[e] * x[e];
    }
  });
  block.template sum_lanes<kWarp>([](NormOwn& own) -> float& { return own.squares; });
  block.each_thread([&](int thread, NormOwn& own) {
    if (thread % kWarp == 0) shared[thread / kWarp] = own.squares;
  });
  block.each_thread([&](int thread, NormOwn&) {
    float squares = 0;
    EVALCAR_UNROLL
    for (int warp = 0; warp < kNormWarps; ++warp) squares += shared[warp];
    const float scale = inverse_root(squares / static_cast<float>(n.width) + n.eps);
    for (std::int64_t at = std::int64_t{thread} * kCount; at < n.width; at += kStep) {
      float x[kCount];
      load_numbers(from + at, x);
      norm_numbers(x, n.weight + at, scale);
      store_numbers(x, to + at);
    }
  });
}

}  // namespace evalcar::kernels
