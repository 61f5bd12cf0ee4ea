// The log: lines on standard error.
#pragma once

#include <string>

namespace evalcar::cli {

/// Sets the program's logger up. `level`: trace, debug, info, warning, error, off.
void set_up_log(const std::string& level);

}  // namespace evalcar::cli
