// The third series: the mean of the regular weights of the last K checkpoints
// (evaluate.average_last).
//
// An average is an evaluation of kind "average" at the step of the newest of K checkpoints that
// follow each other. Its lease links the files of all of them. So that the trainer's retention
// cannot take the older ones before the next checkpoint comes, the regular weights of the newest
// ones stay leased, whether they were evaluated or not: the window. It is K of them, one more than
// the next average has of those that are there: the newest may be saved again (lmms-engine does so
// with the last step) or be wanted although a cadence leaves it out, as the last of the training.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "agent/run/average_members.h"
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
  bool due() const { return (due_ || trim_due_) && wanted_.average_last() > 0; }
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
  Result<std::vector<std::string>> window_of(std::int64_t run_id) const;
  /// Gives up the leases of the window that take room and that no evaluation waits for; false:
  /// there were none. Some averages to come are lost by that.
  Result<bool> give_up_window(std::int64_t run_id);
  /// Another run: nothing that is remembered is of this one.
  void forget();

 private:
  /// A checkpoint of the window that could not be linked.
  struct KeepTry {
    int tries = 0;
    MonotonicTime next{};
  };

  /// One whose members could not be linked.
  struct Refused {
    int tries = 0;
    MonotonicTime again{};          ///< max(): in the look that is under way
    std::set<std::string> members;  ///< names of leases
  };

  std::vector<const AverageMember*> to_come(const std::vector<AverageMember>& all,
                                            const std::set<std::int64_t>& open) const;
  Result<std::set<std::int64_t>> unknown_steps(std::int64_t run_id,
                                               const std::vector<AverageMember>& all) const;
  Result<std::set<std::int64_t>> unformed_steps(std::int64_t run_id) const;
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
  Status keep_window(std::int64_t run_id, const std::vector<AverageMember>& known,
                     std::set<std::int64_t> open);
  void keep(const AverageMember& member, KeepTry attempt);
  Status trim(Slice& slice);

  const Clock& clock_;
  state::Store& store_;
  stage::Stage& stage_;
  const Wanted& wanted_;
  const DiskSpace& space_;
  const DiskView& view_;
  const KeptForBest& kept_;
  const AverageMembers members_;
  bool due_ = true;
  bool trim_due_ = false;
  bool look_once_more_ = false;
  bool looked_ = false;           ///< at this run
  std::set<std::string> formed_;  ///< by the newest member's lease: looked at since it is due
  std::set<std::string> window_;  ///< names of leases
  std::map<std::int64_t, Refused> refused_;    ///< by evaluation
  std::map<std::string, KeepTry> keep_tries_;  ///< by the lease's name
  std::set<std::int64_t> unformed_;  ///< as the look that is under way began: unformed_steps()
  std::set<std::int64_t> given_up_;  ///< evaluations that were refused too often
};

}  // namespace evalcar::run
