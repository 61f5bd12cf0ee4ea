// A bar for work that is counted in bytes.
#pragma once

#include <cstdint>
#include <string>

#include "agent/cli/progress_line.h"
#include "store/base/clock.h"

namespace evalcar::cli {

/// "merge [#####---------------]  25 %  1.0 of 4.0 GB, 1.60 GB/s, 2 s left". The rate is the mean
/// since the start; where it is 0, rate and rest are left out.
std::string transfer_text(const std::string& what, std::uint64_t done, std::uint64_t total,
                          double seconds);

/// Shows it on a terminal, or now and then in the log, from the second second on. Not thread-safe.
class TransferProgress {
 public:
  TransferProgress(std::string what, std::uint64_t total_bytes);
  void show(std::uint64_t done_bytes);

 private:
  std::string what_;
  std::uint64_t total_;
  SystemClock clock_;
  MonotonicTime started_;
  ProgressLine line_;
};

}  // namespace evalcar::cli
