// What becomes of an evaluation's row when an attempt at it ended without a result.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/config/settings.h"
#include "agent/run/completion.h"
#include "agent/run/disk_view.h"
#include "agent/run/leases.h"
#include "agent/run/slice.h"
#include "store/base/clock.h"
#include "store/state/store.h"

namespace evalcar::run {

/// Not thread-safe. All references must outlive it.
class Outcomes {
 public:
  Outcomes(const Clock& clock, const config::LimitSettings& limits, state::Store& store,
           Leases& leases, Completion& completion)
      : clock_(clock), limits_(limits), store_(store), leases_(leases), completion_(completion) {}

  /// Failed: again after a growing pause, or quarantined; or lost, if its files are gone.
  Status fail(const state::Evaluation& row, const state::AttemptFailure& failure, bool retryable);
  /// Failed for a reason that is not its own: it keeps its lease, and nothing is counted. False: it
  /// does not wait for its next try (what it has of numbers is published as it was, or it is lost).
  Result<bool> put_back(const state::Evaluation& row, const state::AttemptFailure& failure);
  /// Newer checkpoints came, by the policy. False: the slice was cut, and some of them still wait.
  Result<bool> supersede(const std::vector<std::int64_t>& evaluations, Slice& slice);
  /// What runs cannot be finished now: its row waits again, and its job is told to let go.
  void interrupt(InFlight& in_flight, const std::string& why);

 private:
  const Clock& clock_;
  const config::LimitSettings& limits_;
  state::Store& store_;
  Leases& leases_;
  Completion& completion_;
};

}  // namespace evalcar::run
