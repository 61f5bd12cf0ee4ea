#include "agent/cli/watch_loop.h"

#include <poll.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "agent/cli/progress_line.h"
#include "agent/service/reload.h"

namespace evalcar::cli {

WatchLoop::WatchLoop(Signals& signals, agent_service::ServiceManager& manager, const Clock& clock,
                     Reread reread, Changed changed)
    : signals_(signals),
      manager_(manager),
      clock_(clock),
      reread_(std::move(reread)),
      changed_(std::move(changed)) {}

WatchLoop::End WatchLoop::run(run::Agent& agent, const config::Config& now) {
  ProgressLine line(clock_);
  ready_ = false;
  while (true) {
    agent.step();
    tell(agent);
    if (agent.finished().has_value()) return stop(agent);
    if (agent.must_begin_anew() && !next_.has_value()) {
      next_ = now;
      agent.begin_no_more();
    }
    if (next_.has_value() && agent.between_evaluations()) {
      agent.hand_over();
      return {0, std::exchange(next_, std::nullopt)};
    }
    if (!next_.has_value() && changed_(now)) reload(agent, now);
    line.show(agent.progress(line.terminal()));
    wait(agent);
    switch (signals_.take()) {
      case Signals::Told::kNothing:
        break;
      case Signals::Told::kStop:
        line.show("");
        spdlog::info("stopping");
        return stop(agent);
      case Signals::Told::kReload:
        reload(agent, now);
        break;
      case Signals::Told::kRest:
        agent.rest();
        break;
    }
  }
}

WatchLoop::End WatchLoop::stop(run::Agent& agent) {
  manager_.stopping();
  return {agent.stop(), {}};
}

/// Once a turn, and nowhere else in the loop: a turn that does not end is told to nobody.
void WatchLoop::tell(const run::Agent& agent) {
  manager_.alive();
  if (!ready_ && agent.looked()) {
    manager_.ready();
    ready_ = true;
  }
  const std::string progress = agent.progress();
  if (!progress.empty()) return manager_.status(progress);
  const std::string hindrance = agent.hindrance();
  manager_.status(hindrance.empty() ? "waiting for checkpoints" : hindrance);
}

void WatchLoop::wait(const run::Agent& agent) {
  std::vector<pollfd> descriptors = {{signals_.descriptor(), POLLIN, 0}};
  agent.add_descriptors(descriptors);
  std::chrono::milliseconds longest = agent.until_due();
  if (const auto period = manager_.alive_every(); period.has_value()) {
    longest = std::min(longest, *period);
  }
  (void)::poll(descriptors.data(), descriptors.size(), static_cast<int>(longest.count()));
}

void WatchLoop::reload(run::Agent& agent, const config::Config& now) {
  manager_.reloading();
  auto next = reread_(now);
  if (!next.has_value()) {
    spdlog::error("the configuration stays as it was: {}", next.error().message);
    if (ready_) manager_.ready();
    return;
  }
  const auto changes = agent_service::changes_of(now, *next);
  if (changes.empty() && !next_.has_value()) {
    spdlog::info("the configuration was read again: nothing in it has changed");
    if (ready_) manager_.ready();
    return;
  }
  for (const std::string& change : changes) spdlog::info("the configuration changes: {}", change);
  next_ = std::move(next).value();
  agent.begin_no_more();
  if (agent.between_evaluations()) return;  // the new agent is ready when it has looked
  spdlog::info("the changes are taken up when this has ended: {}", agent.progress());
  if (ready_) manager_.ready();
}

}  // namespace evalcar::cli
