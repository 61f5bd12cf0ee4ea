// SIGTERM, SIGINT and SIGHUP as something to poll() for.
#pragma once

#include "agent/supervise/child_process.h"

namespace evalcar::cli {

/// Blocks the signals for the process and ignores SIGPIPE. One per process, made before any thread.
class Signals {
 public:
  Signals();

  enum class Told { kNothing, kStop, kReload };
  /// What came since the last call; a stop wins.
  Told take();
  /// A stop waits to be taken: for loops that do not poll.
  static bool stop_pending();
  int descriptor() const { return fd_.get(); }

 private:
  supervise::OwnedFd fd_;
};

}  // namespace evalcar::cli
