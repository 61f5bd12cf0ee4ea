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

/// Behind a turn that failed for a reason of the moment: limits.retry_delay, but neither so short
/// that it spins nor so long that somebody waits for it.
inline std::chrono::milliseconds pause_after_turn(const config::LimitSettings& limits) {
  return std::clamp<std::chrono::milliseconds>(limits.retry_delay, std::chrono::milliseconds(100),
                                               std::chrono::seconds(5));
}

}  // namespace evalcar::run
