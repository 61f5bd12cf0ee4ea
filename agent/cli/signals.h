// SIGTERM, SIGINT and SIGHUP as something to poll() for.
#pragma once

#include <set>

#include "agent/supervise/child_process.h"

namespace evalcar::cli {

/// Blocks the signals for the process and ignores SIGPIPE and SIGXFSZ. What reloads also takes USR2
/// for a wish to have the device's memory, and lives through USR1 and ALRM. One per process, made
/// before any thread.
class Signals {
 public:
  /// What SIGHUP means: read the configuration again, or stop (the terminal was closed). Whoever
  /// was started with it ignored (nohup) does not stop.
  enum class Hangup { kReloads, kStops };
  explicit Signals(Hangup hangup = Hangup::kReloads);

  enum class Told { kNothing, kStop, kReload, kRest };
  /// What came since the last call: a stop before a reload before a rest, which is told the next
  /// time then.
  Told take();
  /// A stop waits to be taken: for loops that do not poll.
  static bool stop_pending();
  int descriptor() const { return fd_.get(); }

 private:
  Hangup hangup_;
  bool hangup_ignored_ = false;
  bool rest_asked_ = false;
  std::set<int> ignored_;  ///< said once of each
  supervise::OwnedFd fd_;
};

}  // namespace evalcar::cli
