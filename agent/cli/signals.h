// SIGTERM, SIGINT and SIGHUP as something to poll() for.
#pragma once

#include <set>

#include "agent/supervise/child_process.h"

namespace evalcar::cli {

/// Blocks the signals for the process and ignores SIGPIPE and SIGXFSZ. What reloads also lives
/// through USR1, USR2 and ALRM. One per process, made before any thread.
class Signals {
 public:
  /// What SIGHUP means: read the configuration again, or stop (the terminal was closed). Whoever
  /// was started with it ignored (nohup) does not stop.
  enum class Hangup { kReloads, kStops };
  explicit Signals(Hangup hangup = Hangup::kReloads);

  enum class Told { kNothing, kStop, kReload };
  /// What came since the last call; a stop wins.
  Told take();
  /// A stop waits to be taken: for loops that do not poll.
  static bool stop_pending();
  int descriptor() const { return fd_.get(); }

 private:
  Hangup hangup_;
  bool hangup_ignored_ = false;
  std::set<int> ignored_;  ///< said once of each
  supervise::OwnedFd fd_;
};

}  // namespace evalcar::cli
