// The window of averages: the checkpoints that may be members of averages to come. Their regular
// weights stay leased, whether they were evaluated or not, so that the trainer's retention cannot
// take the older ones before the next checkpoint comes.
//
// Of K members it is K checkpoints, one more than the next average has of those that are there: the
// newest may be saved again (lmms-engine does so with the last step) or be wanted although a
// cadence leaves it out, as the last of the training.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
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

/// Indexes into `steps` (rising; of checkpoints that are known whole) of those that an average over
/// `last` of them that is yet to be formed may have as members: the newest `newest`, and those
/// around each step of `open`, which may still become whole, or whole anew. Of many such steps the
/// newest few count: the window is linked in one turn.
std::set<std::size_t> members_to_come(const std::vector<std::int64_t>& steps,
                                      const std::set<std::int64_t>& open, std::size_t last,
                                      std::size_t newest);

/// Not thread-safe. All references must outlive it.
class AverageWindow {
 public:
  AverageWindow(const Clock& clock, const state::Store& store, stage::Stage& stage,
                const Wanted& wanted, const DiskSpace& space, const DiskView& view,
                const KeptForBest& kept, const AverageMembers& members);

  /// Leases what averages to come may need, and forgets the rest, which trim() gives back.
  /// `known`: AverageMembers::known(); `open`: steps that may still become complete; `unformed`:
  /// unformed_steps(). What cannot be linked now is tried again by the next one.
  void renew(const std::vector<AverageMember>& known, std::set<std::int64_t> open,
             const std::set<std::int64_t>& unformed);
  /// Names of leases that stay, too, until the next renew().
  void add(const std::set<std::string>& names) { names_.insert(names.begin(), names.end()); }
  /// The look is over that renew() began: whatever it does not need may go.
  void close_look() { looked_ = trim_due_ = true; }
  /// Gives leases back that nobody needs; trim_due() while some are left for another slice.
  Status trim(Slice& slice);
  bool trim_due() const { return trim_due_; }
  /// By the lease's name, since the last renew().
  bool contains(const std::string& name) const { return names_.contains(name); }
  /// Names of all leases that an average of this run may need, before the first renew(), too.
  Result<std::vector<std::string>> names(std::int64_t run_id) const;
  /// Gives up those that take room and that no evaluation waits for; false: there were none. Some
  /// averages to come are lost by that.
  Result<bool> give_up(std::int64_t run_id);
  /// When one is tried again that could not be linked; absent: there is none.
  std::optional<MonotonicTime> retry_due() const;
  void forget_tries() { tries_.clear(); }
  /// Another run: nothing that is remembered is of this one.
  void forget();
  /// Of averages that were planned and have no lease: the steps that they are of.
  Result<std::set<std::int64_t>> unformed_steps(std::int64_t run_id) const;

 private:
  /// A checkpoint that could not be linked.
  struct Try {
    int tries = 0;
    MonotonicTime next{};
  };

  std::vector<const AverageMember*> to_come(const std::vector<AverageMember>& all,
                                            const std::set<std::int64_t>& open) const;
  Result<std::set<std::int64_t>> unknown_steps(std::int64_t run_id,
                                               const std::vector<AverageMember>& all) const;
  void keep(const AverageMember& member, Try attempt);

  const Clock& clock_;
  const state::Store& store_;
  stage::Stage& stage_;
  const Wanted& wanted_;
  const DiskSpace& space_;
  const DiskView& view_;
  const KeptForBest& kept_;
  const AverageMembers& members_;
  std::set<std::string> names_;       ///< of leases
  std::map<std::string, Try> tries_;  ///< by the lease's name
  bool looked_ = false;               ///< at this run
  bool trim_due_ = false;
};

}  // namespace evalcar::run
