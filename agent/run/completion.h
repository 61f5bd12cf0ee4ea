// What becomes of an evaluation that was published without some of its tasks.
//
// Its lease stays, for the rest can be measured from it once what those tasks failed by is over:
// their data are there, or others; the evaluator is another one. Then the row goes the way of an
// evaluation once more, for the tasks without a number alone. It gives its lease up where the rest
// is not wanted any more, and to the disk guard before any other.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "agent/config/settings.h"
#include "agent/run/disk_view.h"
#include "agent/run/leases.h"
#include "agent/run/wanted.h"
#include "agent/supervise/data_check.h"
#include "store/state/store.h"

namespace evalcar::run {

/// What tasks may fail by, as it is now.
struct Circumstances {
  std::optional<supervise::DataReport> data;
  std::string evaluator;  ///< which program it is; "" if that is not known
  std::int64_t look = 0;  ///< rises with each look at the data
};

/// Moves the lease of a row that is not wanted any more to the evaluation of the same weights that
/// is wanted now, for the checkpoint's own files may be gone. False: none is, or it has its own.
Result<bool> hand_over_lease(state::Store& store, const Wanted& wanted, Leases& leases,
                             const state::Evaluation& row);

/// Not thread-safe. All references must outlive it.
class Completion {
 public:
  Completion(state::Store& store, const config::EvaluateSettings& settings, const Wanted& wanted,
             Leases& leases, const DiskView& view)
      : store_(store), settings_(settings), wanted_(wanted), leases_(leases), view_(view) {}

  /// Nothing else waits: makes the newest row whose rest can be measured now `complete`. True: it
  /// did. A row is taken up once for each look at the data, whatever comes of it.
  Result<bool> step(std::int64_t run_id, const Circumstances& now);
  /// Rows changed: the next step() looks at them again.
  void look_again() { looked_at_.reset(); }
  /// How many rows lack tasks, that could be measured; as of the last step().
  std::size_t waiting() const { return waiting_; }

 private:
  Result<bool> is_passed_over(const state::Evaluation& row) const;
  Result<bool> is_wanted(const state::Evaluation& row);
  Result<bool> take_up(const state::Evaluation& row, const Circumstances& now);

  state::Store& store_;
  const config::EvaluateSettings& settings_;
  const Wanted& wanted_;
  Leases& leases_;
  const DiskView& view_;
  std::optional<std::pair<std::int64_t, std::string>> looked_at_;  ///< look and evaluator
  std::map<std::int64_t, std::int64_t> taken_up_;                  ///< evaluation → at which look
  std::size_t waiting_ = 0;
};

}  // namespace evalcar::run
