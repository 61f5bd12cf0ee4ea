// The turns of `evalcar run`: the agent's work, signals, and what the service manager is told.
#pragma once

#include <functional>
#include <optional>

#include "agent/cli/signals.h"
#include "agent/config/config.h"
#include "agent/run/agent.h"
#include "agent/service/service_manager.h"

namespace evalcar::cli {

/// Not thread-safe. All references must outlive it.
class WatchLoop {
 public:
  /// Reads the configuration again, whole and checked, as it is to be after `now`.
  using Reread = std::function<Result<config::Config>(const config::Config& now)>;

  /// Whether what it was read from is another file by now: it is read again, as on SIGHUP.
  using Changed = std::function<bool(const config::Config& now)>;

  WatchLoop(Signals& signals, agent_service::ServiceManager& manager, const Clock& clock,
            Reread reread, Changed changed);

  struct End {
    int exit_code = 0;
    /// Present: the agent is to begin anew under it.
    std::optional<config::Config> next;
  };
  /// Turns the agent until it has finished, a stop is asked for, or another configuration is to be
  /// taken up: between two evaluations, so that the one that runs goes on. The agent is stopped
  /// then. `now`: what it was made of.
  End run(run::Agent& agent, const config::Config& now);

 private:
  End stop(run::Agent& agent);
  void tell(const run::Agent& agent);
  void wait(const run::Agent& agent);
  void reload(run::Agent& agent, const config::Config& now);

  Signals& signals_;
  agent_service::ServiceManager& manager_;
  const Clock& clock_;
  Reread reread_;
  Changed changed_;
  std::optional<config::Config> next_;
  bool ready_ = false;  ///< the service manager knows
};

}  // namespace evalcar::cli
