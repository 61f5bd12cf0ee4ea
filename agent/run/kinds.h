// The kinds of weights as the rows of the database name them.
#pragma once

namespace evalcar::run {

inline constexpr const char* kRegular = "regular";
inline constexpr const char* kAverage = "average";

}  // namespace evalcar::run
