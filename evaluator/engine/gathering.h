// Whether a run's answers are all there: with several ranks, each request is answered by exactly
// one of them. Without libtorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "store/base/result.h"

namespace evalcar::engine {

/// Not thread-safe.
class Gathering {
 public:
  /// For `requests` requests, dealt to ranks 0 … world_size - 1 by the planner.
  Gathering(std::size_t requests, std::int64_t world_size)
      : world_size_(world_size), from_(requests, kNobody) {}

  /// An answer of `rank` came. kInternal where there is no such rank or request, or where the
  /// request has an answer already: a score over it would count a document twice.
  Status take(std::int64_t rank, std::size_t request);

  /// kInternal, with the first such request, if one that is wanted has no answer.
  Status complete(const std::function<bool(std::size_t)>& wanted) const;

 private:
  static constexpr std::int64_t kNobody = -1;
  std::int64_t world_size_;
  std::vector<std::int64_t> from_;  ///< the rank that answered each request
};

}  // namespace evalcar::engine
