// Which weights are wanted next: the evaluator is told while it computes, so that they are near
// when their turn comes.
//
// A look is the schedule's own choice and changes nothing: what the policy gives up is given up
// when its turn comes, and no lease is taken. So it may be wrong by then; something was read in
// vain, and nothing else is lost. An evaluator that ends after it was told costs the evaluation
// that ran: so what failed before is neither read ahead nor measured beside a reading.
#pragma once

#include <cstddef>
#include <optional>

#include "agent/config/settings.h"
#include "agent/run/directories.h"
#include "agent/supervise/supervisor.h"
#include "store/base/clock.h"
#include "store/state/types.h"

namespace evalcar::run {

/// Not thread-safe.
class LookAhead {
 public:
  /// All must outlive it.
  LookAhead(const Clock& clock, const config::EvaluateSettings& settings,
            supervise::Supervisor& supervisor)
      : clock_(clock), settings_(settings), supervisor_(supervisor) {}

  /// While `running` is evaluated: tells which weights are next, once until they are others.
  /// `first`: the directory whose turn it is. An error is of the moment: nothing was told.
  Status step(const Directories& directories, std::size_t first, const state::Evaluation& running);
  /// What the supervisor said. Nothing is read ahead any more once memory ran out over it, or two
  /// processes in a row ended.
  void note(const supervise::JobEvent& event);
  /// The evaluation is over: the load of the next may drop what was read ahead.
  void end();

 private:
  const Clock& clock_;
  const config::EvaluateSettings& settings_;
  supervise::Supervisor& supervisor_;
  std::optional<MonotonicTime> looked_at_;  ///< during this evaluation
  std::optional<protocol::Prefetch> told_;  ///< during this evaluation, the last one
  int ends_ = 0;                            ///< of processes that had been told, in a row
};

}  // namespace evalcar::run
