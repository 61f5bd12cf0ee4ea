// By how much the values of two checkpoints differ.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "store/base/file_system.h"
#include "store/base/result.h"
#include "store/checkpoint/plan.h"

namespace evalcar::checkpoint {

/// Of two tensors `here` and `there`, taken as float64 (two of 64-bit integers as what they are);
/// of a complex type each part is an element.
struct ValueDifference {
  std::uint64_t elements = 0;  ///< whose values differ; NaN equals NaN, and 0 equals -0
  /// Largest |here - there|; absent if one of them is NaN or infinite where the other is not.
  std::optional<double> max_abs;
  /// ‖here − there‖ / ‖there‖ (Euclidean); absent as max_abs, and if all of `there` is 0.
  std::optional<double> relative_l2;
};

/// Whether values of this type can be compared: all but float8 and float4, which mean nothing
/// without their scales.
bool is_comparable(DType dtype);

/// Compares pairs of tensors (indices into the plans) of the same shape and comparable dtypes,
/// which need not be equal, with up to `threads` threads in bounded memory.
/// `on_progress(bytes_done)`, of both plans' bytes, may be empty. kInvalidArgument for a pair that
/// cannot be compared; errors of PlanReader. The plans' checksums are not verified here.
Result<std::vector<ValueDifference>> diff_values(
    const FileSystem& files, const Plan& here, const Plan& there,
    const std::vector<std::pair<std::size_t, std::size_t>>& pairs, int threads,
    const std::function<void(std::uint64_t)>& on_progress);

}  // namespace evalcar::checkpoint
