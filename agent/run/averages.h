// The third series: the mean of the regular weights of the last K checkpoints
// (evaluate.average_last).
//
// An average is an evaluation of kind "average" at the step of the newest of K checkpoints that
// follow each other. Its lease links the files of all of them. What keeps the older ones until the
// next checkpoint comes is the window (average_window.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "agent/run/average_members.h"
#include "agent/run/average_window.h"
#include "agent/run/disk_space.h"
#include "agent/run/disk_view.h"
#include "agent/run/slice.h"
#include "agent/run/wanted.h"
#include "agent/stage/stage.h"
#include "store/base/clock.h"
#include "store/state/store.h"

namespace evalcar::run {

/// Not thread-safe. All references must outlive it.
class Averages {
 public:
  Averages(const Clock& clock, state::Store& store, stage::Stage& stage, const Wanted& wanted,
           const DiskSpace& space, const DiskView& view, const KeptForBest& kept);
  Averages(const Averages&) = delete;
  Averages& operator=(const Averages&) = delete;

  /// Something was recorded: the next step() looks again.
  void look_again() {
    due_ = true;
    formed_.clear();
  }
  /// Plans and leases the averages that can be formed now, and moves the window. An average waits
  /// while a checkpoint among its members may still become complete; those in `torn` cannot. An
  /// error is of the moment: the next step() tries again, and goes on where the slice was cut.
  Status step(std::int64_t run_id, const std::set<std::int64_t>& torn, Slice& slice);
  /// The next step() has something to do.
  bool due() const { return (due_ || window_.trim_due()) && wanted_.average_last() > 0; }
  /// One is tried again whose members could not be linked, for a reason that may pass.
  bool tries_again() const;
  /// When that is, or when a checkpoint is that could not be kept for those to come; absent:
  /// neither.
  std::optional<MonotonicTime> retry_due() const;
  /// Whether the lease of this row is needed by averages to come.
  bool keeps(const state::Evaluation& row) const;
  /// The same by the lease's name.
  bool keeps_name(const std::string& name) const;
  /// That is so since the last look, whether the next one is due or not.
  bool window_holds(const std::string& name) const { return window_.contains(name); }
  /// Names of the leases that an average of this run may need: at a start, before step().
  Result<std::vector<std::string>> window_of(std::int64_t run_id) const {
    return window_.names(run_id);
  }
  /// Gives up the leases of the window that take room and that no evaluation waits for; false:
  /// there were none. Some averages to come are lost by that.
  Result<bool> give_up_window(std::int64_t run_id) { return window_.give_up(run_id); }
  /// Another run: nothing that is remembered is of this one.
  void forget();

 private:
  /// One whose members could not be linked.
  struct Refused {
    int tries = 0;
    MonotonicTime again{};          ///< max(): in the look that is under way
    std::set<std::string> members;  ///< names of leases
  };

  Status form_all(const std::vector<AverageMember>& all, const std::set<std::int64_t>& open,
                  Slice& slice);
  Status form(std::span<const AverageMember> members);
  Status form(std::span<const AverageMember> members, const state::NewEvaluation& wanted);
  Status lease(std::span<const AverageMember> members, const state::Evaluation& row);
  bool waits_for_retry(const state::Evaluation& row) const;
  bool note_refusal(std::span<const AverageMember> members, const state::Evaluation& row);
  Result<bool> another_holds(const state::Evaluation& row, const std::string& dir) const;
  static bool must_wait(std::span<const AverageMember> members, const std::set<std::int64_t>& open);
  Status take_up_unformed(std::int64_t run_id, const std::vector<AverageMember>& all,
                          const std::set<std::int64_t>& open);

  const Clock& clock_;
  state::Store& store_;
  stage::Stage& stage_;
  const Wanted& wanted_;
  const AverageMembers members_;
  AverageWindow window_;
  bool due_ = true;
  bool look_once_more_ = false;
  std::set<std::string> formed_;  ///< by the newest member's lease: looked at since it is due
  std::map<std::int64_t, Refused> refused_;  ///< by evaluation
  std::set<std::int64_t> given_up_;          ///< evaluations that were refused too often
};

}  // namespace evalcar::run
