// Element-wise conversion between the floating dtypes, and accumulation for averages.
#pragma once

#include <cstddef>
#include <span>

#include "store/checkpoint/dtype.h"

namespace evalcar::checkpoint {

/// float64, float32, float16, bfloat16: the types that a cast or an average applies to. float8
/// values mean nothing without their scales, so they are left as they are.
bool is_convertible(DType dtype);

/// Converts element by element; NaN stays NaN, what is too large becomes infinity, and everything
/// else is rounded to the nearest, ties to even, as torch's `.to` does (float64 to 16 bits by way
/// of float32, which torch does too). Both types convertible; `out` holds as many elements as `in`
/// and does not overlap it. Thread-safe.
void convert(DType from, std::span<const std::byte> in, DType to, std::span<std::byte> out);

/// sum[i] += weight * in[i], in float64, without a fused multiply-add. `from` convertible.
void accumulate(DType from, std::span<const std::byte> in, double weight, std::span<double> sum);

/// out[i] = sum[i] / divisor, rounded as convert() does from float64.
void write_mean(std::span<const double> sum, double divisor, DType to, std::span<std::byte> out);

}  // namespace evalcar::checkpoint
