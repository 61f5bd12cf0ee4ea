// Element-wise conversion between the floating dtypes, and accumulation for averages.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "store/checkpoint/dtype.h"

namespace evalcar::checkpoint {

/// float64, float32, float16, bfloat16: the types that a cast or an average applies to. float8
/// values mean nothing without their scales, so they are left as they are.
bool is_convertible(DType dtype);

/// Converts element by element; NaN stays NaN, what is too large becomes infinity, and everything
/// else is rounded to the nearest, ties to even, as torch's `.to` does. Both types convertible;
/// `out` holds as many elements as `in`. Thread-safe.
void convert(DType from, std::span<const std::byte> in, DType to, std::span<std::byte> out);

/// sum[i] += in[i]. `from` convertible.
void accumulate(DType from, std::span<const std::byte> in, std::span<double> sum);

/// out[i] = sum[i] / count, rounded once to `to`.
void write_mean(std::span<const double> sum, double count, DType to, std::span<std::byte> out);

}  // namespace evalcar::checkpoint
