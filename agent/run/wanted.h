// What the configuration wants measured of a checkpoint.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/config/settings.h"
#include "agent/run/disk_view.h"
#include "agent/run/trainer_state.h"
#include "agent/schedule/schedule.h"
#include "store/state/store.h"

namespace evalcar::run {

/// Not thread-safe. All references must outlive it.
class Wanted {
 public:
  Wanted(const FileSystem& files, const config::EvaluateSettings& settings,
         const state::Reader& rows, const DiskView& view);

  /// The evaluations of these weights that the configuration has: one, or where some tasks have a
  /// cadence of their own, one more for each such cadence. Whether each is wanted of this
  /// checkpoint says why_not().
  std::vector<state::NewEvaluation> evaluations_of(std::int64_t checkpoint_id,
                                                   const std::string& kind) const;
  /// Whether a row is of this configuration. The order of tasks is for people; what is measured is
  /// their set.
  bool matches(const state::Standing& row) const;
  /// How they are known; absent: nothing is configured (`evalcar serve`).
  std::optional<state::ConfiguredSettings> configured() const;
  /// "" if an evaluation of these tasks on this kind of weights of this step is wanted, else the
  /// reason.
  Result<std::string> why_not(std::int64_t run_id, std::int64_t step, const std::string& kind,
                              const std::vector<std::string>& tasks) const;
  Result<std::string> why_not(const state::Evaluation& row) const {
    return why_not(row.run_id, row.step, row.kind, row.settings.tasks);
  }
  /// Training is over, and this was its last checkpoint.
  void set_last(std::optional<std::int64_t> step) { last_step_ = step; }
  std::optional<std::int64_t> last() const { return last_step_; }
  /// What is wanted depends on how many checkpoints were before (every_nth, task_every_nth).
  bool counts() const { return settings_.every_nth > 1 || !settings_.task_every_nth.empty(); }
  /// When its trainer_state.json was written, if that says that it is the last step of its
  /// training.
  std::optional<std::int64_t> end_marked_at(std::int64_t step) const;
  /// Another run: nothing that is remembered is of this one.
  void forget();
  /// Over how many checkpoints an average goes; 0: none is wanted.
  std::int64_t average_last() const { return settings_.average_last; }
  /// How many of the newest checkpoints are kept for averages to come; none where only what a
  /// person asks for is measured.
  std::int64_t average_window() const {
    return settings_.eval_strategy == config::EvalStrategy::kNo ? 0 : settings_.average_last;
  }

 private:
  /// Tasks that are measured together.
  struct Group {
    config::TaskCadence cadence;
    std::vector<std::string> tasks;  ///< in the order of the configuration
  };
  const Group* group_of(const std::vector<std::string>& tasks) const;
  protocol::EvaluationSettings settings_of(const std::string& kind) const;
  bool leaves_out() const;
  const TrainerState* trainer_state(std::int64_t step) const;
  Result<schedule::Occasion> occasion_of(std::int64_t run_id, std::int64_t step) const;
  /// What is known of the step alone.
  schedule::Occasion bare_occasion_of(std::int64_t step) const;
  schedule::Cadence cadence() const;
  Result<bool> let_through(std::int64_t run_id, const schedule::Occasion& earlier) const;
  void warn_of_mismatch(const schedule::Occasion& occasion) const;

  const FileSystem& files_;
  const config::EvaluateSettings& settings_;
  const state::Reader& rows_;
  const DiskView& view_;
  protocol::EvaluationSettings wanted_;
  std::vector<Group> groups_;     ///< those of the cadence of all first
  std::string identity_;          ///< of regular and EMA weights
  std::string average_identity_;  ///< of averages: over how many counts too
  std::optional<std::int64_t> last_step_;
  struct KnownState {
    FileInfo file;
    std::optional<TrainerState> state;  ///< absent: it cannot be read
  };
  mutable std::map<std::int64_t, KnownState> trainer_states_;  ///< by step; a file is read once
  mutable bool mismatch_known_ = false;
  mutable bool unreadable_told_ = false;
};

}  // namespace evalcar::run
