// One agent an output directory: a lock on a file in _evalcar/, held as long as the object lives.
#pragma once

#include <string>

#include "agent/supervise/child_process.h"
#include "store/base/result.h"

namespace evalcar::run {

class OutputLock {
 public:
  /// Locks `path`, made if needed, and writes who we are into it. kUnavailable names the holder;
  /// kIo: there can be no lock here (read-only, no permission).
  static Result<OutputLock> take(const std::string& path);

 private:
  explicit OutputLock(supervise::OwnedFd fd) : fd_(std::move(fd)) {}
  supervise::OwnedFd fd_;
};

}  // namespace evalcar::run
