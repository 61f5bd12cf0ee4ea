// Leases keep the disk space of weights that the trainer deleted. Where that runs out, or is more
// than was allowed, they are given up and say so: those for averages to come, those of rows that
// have numbers, the oldest, and last those that are kept as the best.
#pragma once

#include "agent/run/disk_space.h"
#include "agent/run/leases.h"
#include "store/base/clock.h"

namespace evalcar::run {

/// Not thread-safe. All references must outlive it.
class DiskGuard {
 public:
  DiskGuard(const Clock& clock, state::Store& store, const stage::Stage& stage,
            const DiskSpace& space, const InFlight& in_flight, Averages& averages, BestKept& best,
            Leases& leases);

  /// Every few seconds; cheap in between.
  Status step(std::int64_t run_id);

 private:
  Result<bool> give_up_oldest(std::int64_t run_id, const stage::Held& held, const std::string& why);

  const Clock& clock_;
  state::Store& store_;
  const stage::Stage& stage_;
  const DiskSpace& space_;
  const InFlight& in_flight_;
  Averages& averages_;
  BestKept& best_;
  Leases& leases_;
  MonotonicTime guarded_at_{};
};

}  // namespace evalcar::run
