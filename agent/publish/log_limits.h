// What the logs of a run may be at most.
#pragma once

#include <cstdint>

namespace evalcar::publish {

/// Of a whole log, and of one line in it.
inline constexpr std::uint64_t kMaxLogBytes = std::uint64_t{1} << 30U;

}  // namespace evalcar::publish
