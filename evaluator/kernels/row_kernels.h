// A few rows times a matrix in float32, by the best instructions of the CPU: a BLAS is made for
// many rows, and one row is as fast as the matrix is read. No libtorch.
#pragma once

#include <cstdint>
#include <span>

namespace evalcar::kernels {

/// s[m][n] = Σ x[m][k] · w[n][k] (+ bias[n]) for all m < rows and n < outputs is y[m · stride + n],
/// or, with `adds`, added to it.
template <typename Weight>
struct RowProduct {
  const float* x = nullptr;  ///< (rows, width), for bfloat16 weights as arrange() puts them
  std::int64_t rows = 0;
  const Weight* w = nullptr;  ///< (outputs, width)
  std::int64_t outputs = 0;
  std::int64_t width = 0;
  const float* bias = nullptr;  ///< (outputs), or null
  bool adds = false;
  float* y = nullptr;
  std::int64_t stride = 0;
};

/// Each output is one chain of fused multiply-adds per lane, and one fixed sum of the lanes: it
/// depends neither on the other rows of the call nor on which rows of the matrix go together.
/// Thread-safe.
struct RowKernels {
  const char* name;  ///< "avx512" | "avx2" | "portable"
  /// Up to so many rows it was measured faster than MKL (Zen 4, matrices larger than the caches);
  /// what takes many rows begins earlier (many_rows.h).
  std::int64_t most_rows;
  void (*multiply)(const RowProduct<float>&);
  /// Weights are bfloat16, the upper halves of float32.
  void (*multiply_bf16)(const RowProduct<std::uint16_t>&);
  /// Puts a row of `width` values in the order in which multiply_bf16() reads them. `out` is not
  /// `x`.
  void (*arrange)(const float* x, float* out, std::int64_t width);
};

/// Those that this CPU can run, the best first; the last is portable.
std::span<const RowKernels> row_kernels();

}  // namespace evalcar::kernels
