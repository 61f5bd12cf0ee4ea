// Leases keep the disk space of weights that the trainer deleted. Where that runs out, or is more
// than was allowed, they are given up and say so: those for averages to come, those of rows that
// have numbers, the oldest, and last those that are kept as the best. Rows that the configuration
// does not want any more have ended before.
#pragma once

#include <cstdint>
#include <string>

#include "agent/run/disk_space.h"
#include "agent/run/leases.h"
#include "agent/run/slice.h"
#include "store/base/clock.h"

namespace evalcar::run {

/// Not thread-safe. All references must outlive it.
class DiskGuard {
 public:
  DiskGuard(const Clock& clock, state::Store& store, const stage::Stage& stage,
            const DiskSpace& space, const InFlight& in_flight, Averages& averages, BestKept& best,
            Leases& leases);

  /// Every few seconds; cheap in between. Goes on at once where the slice was cut.
  Status step(std::int64_t run_id, Slice& slice);
  /// The last step() was cut.
  bool due() const { return cut_; }

 private:
  /// What is missing, as of a look at the disk.
  struct Shortage {
    stage::Held held;
    std::uint64_t before = 0;  ///< held.bytes() at the look
    std::uint64_t free = 0;    ///< then
    std::uint64_t keep = 0;
    std::uint64_t budget = 0;
    bool low() const;
    bool ends() const;
    std::string reason() const;
  };
  Status give_up_rows(std::int64_t run_id, Shortage& shortage, Slice& slice);
  Status give_up(const state::Evaluation& row, const std::string& why);

  const Clock& clock_;
  state::Store& store_;
  const stage::Stage& stage_;
  const DiskSpace& space_;
  const InFlight& in_flight_;
  Averages& averages_;
  BestKept& best_;
  Leases& leases_;
  MonotonicTime guarded_at_{};
  bool cut_ = false;
};

}  // namespace evalcar::run
