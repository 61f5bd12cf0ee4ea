// Whether the run's own config.yaml, from which settings were taken, is another file by now: a
// training that starts in the output directory of one before it writes its own, a while after the
// agent has begun.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "agent/config/config.h"
#include "store/base/clock.h"
#include "store/base/file_system.h"

namespace evalcar::cli {

/// Not thread-safe.
class RunConfigWatch {
 public:
  /// Both must outlive it.
  RunConfigWatch(const FileSystem& files, const Clock& clock) : files_(files), clock_(clock) {}

  /// Looks every watch.poll_interval, if tasks of `now` were taken from that file. True once after
  /// each change, when two looks in a row found the same: it is written in place. That it is not
  /// there, or does not answer, is no change.
  bool changed(const config::Config& now);

 private:
  const FileSystem& files_;
  const Clock& clock_;
  MonotonicTime due_{};
  std::optional<FileInfo> seen_;  ///< at the last look
  std::optional<FileInfo> told_;  ///< of: it may say nothing new, or nothing that can be taken up
};

}  // namespace evalcar::cli
