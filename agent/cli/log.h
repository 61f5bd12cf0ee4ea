// The log: lines on standard error, in the journal, or in a file of its own.
#pragma once

#include <cstdint>
#include <string>

#include "store/base/result.h"

namespace evalcar::cli {

struct LogOptions {
  std::string level = "info";  ///< trace, debug, info, warning, error, off
  std::string file;            ///< lines go there instead of to standard error
  std::uint64_t max_bytes = std::uint64_t{32} << 20U;  ///< of that file; three older ones are kept
};

/// Sets the program's logger up. Where standard error leads to the journal (JOURNAL_STREAM), each
/// line begins with its priority instead of time, level and colours. A warning or error that says
/// the same more than five times a minute is said again after that minute, with how often it was
/// kept back. An error tells why the file cannot be opened.
Status set_up_log(const LogOptions& options);

}  // namespace evalcar::cli
