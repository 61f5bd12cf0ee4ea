// Ranges of a flattened tensor, as boxes. DeepSpeed keeps its parameters in flat vectors, cut
// without regard to rows.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "store/base/result.h"
#include "store/checkpoint/dtype.h"
#include "store/checkpoint/plan.h"
#include "store/checkpoint/plan_budget.h"

namespace evalcar::checkpoint {

/// Where elements of a flat vector lie in a file, contiguously.
struct FlatSegment {
  std::uint64_t begin = 0;  ///< index in the vector of the segment's first element
  std::uint64_t count = 0;
  std::size_t file = 0;           ///< index into Plan::files
  std::uint64_t file_offset = 0;  ///< bytes, of the first element
};

/// A vector of elements whose segments follow each other without gaps.
class FlatVector {
 public:
  /// Appends `count` elements of `dtype`; kCorruption if the vector grows beyond 2⁶³, or its
  /// elements were of another type so far.
  Status append(std::uint64_t count, DType dtype, std::size_t file, std::uint64_t file_offset);
  std::uint64_t size() const { return size_; }

  /// The elements [begin, begin + count) of the vector are the elements [tensor_begin, …) of the
  /// row-major `tensor`: adds their boxes to its pieces, in at most two boxes a dimension and
  /// segment. kCorruption if the vector ends before, its elements are of another type than the
  /// tensor's are stored in, the range lies outside of the tensor, or the budget is spent.
  Status add_pieces(TensorPlan& tensor, std::uint64_t tensor_begin, std::uint64_t begin,
                    std::uint64_t count, PlanBudget& budget) const;

 private:
  std::vector<FlatSegment> segments_;  // by begin; none empty
  std::uint64_t size_ = 0;
  std::optional<DType> dtype_;  // as soon as something was appended
};

}  // namespace evalcar::checkpoint
