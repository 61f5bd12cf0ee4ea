// Which keys of a sequence a query attends to.
#pragma once

#include <cstdint>

namespace evalcar::kernels {

/// Keys [shared_begin, shared_end) and [begin, end); the former lie before the latter, or are none.
struct SeenKeys {
  std::int64_t shared_begin = 0;
  std::int64_t shared_end = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t first() const { return shared_begin < shared_end ? shared_begin : begin; }
  bool all_of(std::int64_t from, std::int64_t to) const {
    return (begin <= from && to <= end) || (shared_begin <= from && to <= shared_end);
  }
};

}  // namespace evalcar::kernels
