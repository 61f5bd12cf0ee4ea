// Rows that another configuration left open end, and leases that nobody needs any more are removed.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "agent/run/leases.h"
#include "agent/run/slice.h"
#include "agent/run/wanted.h"
#include "agent/stage/stage.h"
#include "store/base/clock.h"
#include "store/state/store.h"

namespace evalcar::run {

/// Open rows of another configuration. Not thread-safe. All references must outlive it.
class UnwantedRows {
 public:
  UnwantedRows(state::Store& store, const Wanted& wanted, Leases& leases)
      : store_(store), wanted_(wanted), leases_(leases) {}

  /// Ends them, or hands their lease to the row that is wanted now. True: one waits since. Call
  /// again where the slice was cut.
  Result<bool> end(std::int64_t run_id, Slice& slice);
  /// None are left.
  bool ended() const { return ended_; }
  /// There may be some again.
  void look_again() { ended_ = false; }

 private:
  state::Store& store_;
  const Wanted& wanted_;
  Leases& leases_;
  bool ended_ = false;
};

/// What a kill, or a file system that did not answer, left of leases that nobody needs. Not
/// thread-safe. All references must outlive it.
class Leftovers {
 public:
  Leftovers(const state::Store& store, stage::Stage& stage) : store_(store), stage_(stage) {}

  /// Those that no row holds and for whose name `is_needed` says no. A failure is told and tried
  /// again after a while. Errors: the store's.
  Status remove(MonotonicTime now, const std::function<bool(const std::string& name)>& is_needed,
                Slice& slice);
  /// There are some to be removed, now.
  bool wait(MonotonicTime now) const { return stage_.has_leftovers() && now >= not_before_; }
  bool there() const { return stage_.has_leftovers(); }
  MonotonicTime not_before() const { return not_before_; }

 private:
  const state::Store& store_;
  stage::Stage& stage_;
  MonotonicTime not_before_{};
};

}  // namespace evalcar::run
