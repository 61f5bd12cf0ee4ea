// Element-wise conversion between the floating dtypes, and accumulation for averages.
#pragma once

#include <cstddef>
#include <span>

#include "store/checkpoint/dtype.h"

namespace evalcar::checkpoint {

/// float64, float32, float16, bfloat16: the types that a cast applies to.
bool is_convertible(DType dtype);

/// The types that an average applies to: these and, number by number, the complex ones.
bool is_averaged(DType dtype);
/// 2 for a complex type (real and imaginary part), else 1.
std::size_t numbers_per_element(DType dtype);
/// The float8 and float4 types. Their values mean nothing without scales that lie elsewhere, so
/// they are neither cast nor averaged.
bool is_scaled(DType dtype);

/// Converts element by element; NaN stays NaN, what is too large becomes infinity, and everything
/// else is rounded to the nearest, ties to even, as torch's `.to` does (float64 to 16 bits by way
/// of float32, which torch does too). Both types convertible; `out` holds as many elements as `in`
/// and does not overlap it. Thread-safe.
void convert(DType from, std::span<const std::byte> in, DType to, std::span<std::byte> out);

/// What a sum begins with: x + -0.0 is x, whatever x is; the mean of -0.0 and -0.0 is -0.0.
inline constexpr double kEmptySum = -0.0;

/// sum[i] += weight * in[i], in float64, without a fused multiply-add. `from` averaged; `sum` and
/// `in` hold as many numbers.
void accumulate(DType from, std::span<const std::byte> in, double weight, std::span<double> sum);

/// out[i] = sum[i] / divisor, rounded once: from float64 to the nearest of `to` (averaged), ties to
/// even, 16-bit types too. `out` holds as many numbers as `sum`.
void write_mean(std::span<const double> sum, double divisor, DType to, std::span<std::byte> out);

}  // namespace evalcar::checkpoint
