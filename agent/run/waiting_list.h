// Which evaluations of a run wait to be measured, and which of them not yet: after a failure, or
// while others get their turn.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/config/settings.h"
#include "agent/run/requested.h"
#include "agent/run/wanted.h"
#include "agent/schedule/schedule.h"
#include "store/base/clock.h"
#include "store/state/reader.h"

namespace evalcar::run {

/// Not thread-safe. All references must outlive it; `rows` is asked by it alone what has changed
/// (Reader::changed_evaluations).
class WaitingList {
 public:
  WaitingList(const Clock& clock, const config::LimitSettings& limits, const state::Reader& rows,
              const Wanted& wanted, const Requested& requested)
      : clock_(clock), limits_(limits), rows_(rows), wanted_(wanted), requested_(requested) {}

  struct Look {
    std::vector<schedule::Candidate> candidates;
    bool unwanted = false;  ///< open rows of another configuration are there
  };
  /// Those of this run. Only rows that have changed since the last look are read.
  Result<Look> look(std::int64_t run_id);
  /// Nothing was looked at: how many rest without their data is not known.
  void skip() { without_data_count_ = 0; }
  /// How many waited at the last look.
  std::size_t count() const { return count_; }
  /// How many of those rested without their data.
  std::size_t count_without_data() const { return without_data_count_; }

  /// It is not chosen before then: others get their turn first.
  void rest(std::int64_t evaluation, MonotonicTime until) { resting_[evaluation] = until; }
  /// The same of one whose tasks' data are missing, for a pause that grows with its attempts.
  void rest_without_data(const state::Evaluation& row);
  /// All of them may be chosen again.
  void end_rest() {
    resting_.clear();
    without_data_.clear();
  }

 private:
  /// What a row says, as far as it is asked at each look.
  struct Row {
    schedule::Candidate candidate;
    bool requested = false;  ///< by a job
    bool wanted = false;     ///< by the configuration
    state::EvaluationState state = state::EvaluationState::kFound;
    std::int64_t failures = 0;
    std::string next_try_at;
  };

  Status refresh(std::int64_t run_id);
  void keep(const state::Standing& row, std::int64_t written_ns);
  void add(const Row& row, Look& look);
  bool try_is_due(const Row& row) const;

  const Clock& clock_;
  const config::LimitSettings& limits_;
  const state::Reader& rows_;
  const Wanted& wanted_;
  const Requested& requested_;
  std::optional<std::int64_t> run_id_;  ///< whose rows `kept_` has; absent: none are known
  std::map<std::int64_t, Row> kept_;    ///< those that wait, by evaluation
  std::map<std::int64_t, MonotonicTime> resting_;  ///< evaluation → not before
  std::set<std::int64_t> without_data_;            ///< why some of them rest
  std::size_t count_ = 0;
  std::size_t without_data_count_ = 0;
};

}  // namespace evalcar::run
