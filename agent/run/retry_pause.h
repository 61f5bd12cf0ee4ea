// How long to wait for the next try.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "agent/config/settings.h"

namespace evalcar::run {

/// limits.retry_delay behind the first failure, twice as long behind each further one, and from the
/// eleventh on the same.
inline std::chrono::milliseconds pause_after(const config::LimitSettings& limits,
                                             std::int64_t failures) {
  const std::int64_t doubled = std::clamp<std::int64_t>(failures - 1, 0, 10);
  return limits.retry_delay * (std::int64_t{1} << doubled);
}

}  // namespace evalcar::run
