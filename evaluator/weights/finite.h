// Looking for NaN and infinity in stored tensors, by their exponent bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "store/checkpoint/dtype.h"

namespace evalcar::weights {

/// Whether the engine reads this dtype: float64, float32, float16, bfloat16.
bool is_float_dtype(checkpoint::DType dtype);

/// Index of the first element that is NaN or infinite, or (float64) too large for float32. `bytes`
/// are little-endian elements of a dtype for which is_float_dtype() holds.
std::optional<std::uint64_t> first_not_finite(std::span<const std::byte> bytes,
                                              checkpoint::DType dtype);

}  // namespace evalcar::weights
