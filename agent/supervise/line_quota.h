// How much of what a child writes goes to our log: one that repeats the same complaint for ever
// must not fill a disk with it.
#pragma once

#include <cstdint>

#include "store/base/clock.h"

namespace evalcar::supervise {

/// So many lines in each period. Not thread-safe.
class LineQuota {
 public:
  static constexpr std::int64_t kLines = 200;
  static constexpr std::chrono::seconds kPeriod{60};

  /// Whether the next line may be logged. `left_out` is set to the number of lines that were not in
  /// the period before, once, at the first line of a new one; else to 0.
  bool take(MonotonicTime now, std::int64_t& left_out);

 private:
  MonotonicTime since_{};
  std::int64_t taken_ = 0;
  std::int64_t refused_ = 0;
};

}  // namespace evalcar::supervise
