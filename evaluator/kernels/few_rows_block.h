// A linear layer of a few rows on a GPU, as decoding asks for it: what a block of threads does, for
// the GPU and for a test without one. C++17, for nvcc.
//
// What takes the time is reading the matrix once. A block takes kOutputsOfBlock of its rows, which
// share what is loaded of x, and all of their width: a thread goes over it in steps of whole
// vectors, and the sums of all threads are added up at the end. Their order depends on the width
// alone: a row of x has the same bits whatever stands beside it.
#pragma once

#include <cstdint>

#include "evaluator/kernels/device_numbers.h"
#include "evaluator/kernels/swiglu_block.h"
#include "evaluator/kernels/thread_block.h"

namespace evalcar::kernels {

constexpr int kFewRowsThreads = 128;
constexpr int kFewRowsWarps = kFewRowsThreads / kWarp;
constexpr int kOutputsOfBlock = 4;
constexpr int kMostFewRows = 4;

/// What becomes of x · wᵀ + bias.
enum class RowsResult {
  kStored,
  kAdded,  ///< to y, before it is rounded
  kGated,  ///< silu of its first half times the second: y has half as many outputs
};

/// The width is a multiple of kVector<T>; x and w start at 16-byte boundaries.
template <typename T>
struct FewRows {
  const T* x;     ///< (rows, width)
  const T* w;     ///< (outputs, width)
  const T* bias;  ///< (outputs), or null
  T* y;           ///< (rows, outputs), or half as many
  std::int64_t rows, outputs, width;
  RowsResult result;
};

/// So many blocks do it.
template <typename T>
EVALCAR_ON_BOTH std::int64_t few_rows_blocks(const FewRows<T>& p) {
  return (p.outputs + kOutputsOfBlock - 1) / kOutputsOfBlock;
}

/// Rows of w that block `number` takes: neighbours, or half as many of either half.
template <typename T>
EVALCAR_ON_BOTH std::int64_t output_of(const FewRows<T>& p, std::int64_t number, int which) {
  if (p.result != RowsResult::kGated) return number * kOutputsOfBlock + which;
  constexpr int kPairs = kOutputsOfBlock / 2;
  const std::int64_t pair = number * kPairs + which % kPairs;
  // One of the second half only with its gate.
  return pair < p.outputs / 2 ? pair + which / kPairs * (p.outputs / 2) : p.outputs;
}

template <int kRows>
struct FewRowsShape {
  static constexpr int kSums = kOutputsOfBlock * kRows;
  static constexpr int kShared = kFewRowsWarps * kSums;
  /// A thread's registers.
  struct Own {
    float sums[kOutputsOfBlock][kRows];
  };
};

/// Sum of output `which` and row `row`, with its bias, from what the warps left.
template <int kRows, typename T>
EVALCAR_ON_BOTH float few_rows_sum(const FewRows<T>& p, std::int64_t output, int which, int row,
                                   const float* shared) {
  float sum = 0;
  EVALCAR_UNROLL
  for (int warp = 0; warp < kFewRowsWarps; ++warp)
    sum += shared[warp * FewRowsShape<kRows>::kSums + which * kRows + row];
  return p.bias == nullptr ? sum : sum + widen(p.bias[output]);
}

/// Block `number`, for exactly kRows rows. shared: (FewRowsShape::kShared).
template <int kRows, typename T, typename Block>
EVALCAR_DEVICE void multiply_few_rows(const FewRows<T>& p, std::int64_t number, Block& block,
                                      float* shared) {
  using Shape = FewRowsShape<kRows>;
  using Own = typename Shape::Own;
  constexpr int kCount = kVector<T>;
  constexpr std::int64_t kStep = std::int64_t{kFewRowsThreads} * kCount;

  block.each_thread([&](int thread, Own& own) {
    const T* w[kOutputsOfBlock];
    EVALCAR_UNROLL
    for (int which = 0; which < kOutputsOfBlock; ++which) {
      const std::int64_t output = output_of(p, number, which);
      w[which] = p.w + (output < p.outputs ? output : 0) * p.width;  // past the end: of no use
      EVALCAR_UNROLL
      for (int row = 0; row < kRows; ++row) own.sums[which][row] = 0;
    }
    EVALCAR_UNROLL_BY_4
    for (std::int64_t at = std::int64_t{thread} * kCount; at < p.width; at += kStep) {
      float weights[kOutputsOfBlock][kCount];
      EVALCAR_UNROLL
      for (int which = 0; which < kOutputsOfBlock; ++which)
        load_vector(w[which] + at, weights[which]);
      EVALCAR_UNROLL
      for (int row = 0; row < kRows; ++row) {
        float x[kCount];
        load_vector(p.x + row * p.width + at, x);
        EVALCAR_UNROLL
        for (int which = 0; which < kOutputsOfBlock; ++which) {
          EVALCAR_UNROLL
          for (int e = 0; e < kCount; ++e) own.sums[which][row] += weights[which][e] * x[e];
        }
      }
    }
  });
  EVALCAR_UNROLL
  for (int which = 0; which < kOutputsOfBlock; ++which) {
    EVALCAR_UNROLL
    for (int row = 0; row < kRows; ++row) {
      block.template sum_lanes<kWarp>(
          [which, row](Own& own) -> float& { return own.sums[which][row]; });
    }
  }
  block.each_thread([&](int thread, Own& own) {
    if (thread % kWarp != 0) return;
    EVALCAR_UNROLL
    for (int which = 0; which < kOutputsOfBlock; ++which) {
      EVALCAR_UNROLL
      for (int row = 0; row < kRows; ++row)
        shared[thread / kWarp * Shape::kSums + which * kRows + row] = own.sums[which][row];
    }
  });

  block.each_thread([&](int thread, Own&) {
    const int which = thread / kRows, row = thread % kRows;
    const bool gated = p.result == RowsResult::kGated;
    if (which >= (gated ? kOutputsOfBlock / 2 : kOutputsOfBlock)) return;
    const std::int64_t output = output_of(p, number, which);
    if (output >= p.outputs) return;
    const float sum = few_rows_sum<kRows>(p, output, which, row, shared);
    if (gated) {  // rounded where two operations would
      const float up = rounded<T>(
          few_rows_sum<kRows>(p, output + p.outputs / 2, which + kOutputsOfBlock / 2, row, shared));
      p.y[row * (p.outputs / 2) + output] =
          narrow<T>(product(rounded<T>(silu(rounded<T>(sum))), up));
      return;
    }
    T& y = p.y[row * p.outputs + output];
    y = narrow<T>(p.result == RowsResult::kAdded ? widen(y) + sum : sum);
  });
}

}  // namespace evalcar::kernels
