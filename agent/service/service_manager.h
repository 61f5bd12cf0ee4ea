// What the service manager is told: systemd, or whoever else listens on NOTIFY_SOCKET (podman, a
// test). The protocol is sd_notify(3)'s, datagrams of "NAME=value" lines, spoken without
// libsystemd. Without NOTIFY_SOCKET every call does nothing.
//
// Everything said here is to be true: ready() comes when the work of the start is done, alive()
// only out of the loop's own turns and out of long work that goes on, so that a loop that hangs
// falls silent and is restarted, while an evaluation may take days.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>

#include "store/base/clock.h"
#include "store/base/result.h"

namespace evalcar::agent_service {

/// Where the service manager listens, and what it expects.
struct ManagerAddress {
  std::string socket;                     ///< a path, "@name" in the abstract namespace, or ""
  std::chrono::microseconds watchdog{0};  ///< it restarts us after so long a silence; 0: never
};

/// As the environment says (NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID), whose variables are
/// removed: none of our children speaks for us. Before any thread is started.
ManagerAddress take_manager_address();

/// systemd started this very process, of the system or of a user: its unit's settings are in force.
/// False under systemd before version 248, which does not say so.
bool is_process_of_unit();

/// Not thread-safe. No call waits longer than 0.1 s. What cannot be told is told again with the
/// next call, if it is a change of state; trouble is logged once.
class ServiceManager {
 public:
  /// `clock` must outlive it; its monotonic time is that of CLOCK_MONOTONIC.
  ServiceManager(const Clock& clock, const ManagerAddress& address);
  ~ServiceManager();
  ServiceManager(const ServiceManager&) = delete;
  ServiceManager& operator=(const ServiceManager&) = delete;

  /// The start, or a reload, is done.
  void ready();
  /// The configuration is being read again; ready() must follow.
  void reloading();
  /// The end has begun.
  void stopping();
  /// What runs now, for people: told when it has changed, and not more than every two seconds.
  void status(const std::string& text);
  /// Work goes on. Told to the watchdog four times a period at most; while starting or stopping,
  /// it also asks for more time.
  void alive();
  /// How often alive() must be called at least; absent: no watchdog.
  std::optional<std::chrono::milliseconds> alive_every() const;

 private:
  enum class Phase { kStarting, kRunning, kStopping };

  void tell_state(std::string lines);
  void deliver();
  bool send(const std::string& lines, bool may_wait);

  const Clock& clock_;
  std::string socket_name_;
  std::chrono::microseconds watchdog_;
  int fd_ = -1;  ///< -1: nobody listens
  Phase phase_ = Phase::kStarting;
  std::deque<std::string> undelivered_;  ///< changes of state, oldest first
  std::string status_;
  std::optional<MonotonicTime> status_at_;
  std::optional<MonotonicTime> alive_at_;
  std::optional<MonotonicTime> extended_at_;
  bool complained_ = false;
};

}  // namespace evalcar::agent_service
