// Which evaluation holds which lease: rows of the store beside folders of agent/stage.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/run/averages.h"
#include "agent/run/best_kept.h"
#include "agent/run/disk_space.h"
#include "agent/run/disk_view.h"
#include "agent/run/slice.h"
#include "agent/stage/stage.h"
#include "agent/watch/watcher.h"
#include "store/state/store.h"

namespace evalcar::run {

/// Not thread-safe. All references must outlive it.
class Leases {
 public:
  using FolderId = std::pair<std::uint64_t, std::uint64_t>;  ///< device and inode

  Leases(const Clock& clock, state::Store& store, stage::Stage& stage, watch::Watcher& watcher,
         const DiskSpace& space, Averages& averages, BestKept& best, const DiskView& view);

  /// Leases a complete row's files, which `seen` describes. If they are gone the row is lost; if
  /// they are not what was seen, the watcher looks again and the row waits.
  Status take(const state::Evaluation& row, const watch::Sighting& seen);
  /// While nothing can be recorded (a full disk, a locked database) the trainer's retention goes
  /// on: takes the lease `name` of what is complete, before there is a row for it. By links alone.
  /// `folder`: of the checkpoint, by which its generation was told.
  void hold(const watch::Sighting& seen, const std::string& name, FolderId folder);
  /// Where the trainer's disk is short of space nothing is to be held (false), and what was goes.
  bool may_hold();
  bool is_held(const watch::Sighting& seen) const;
  /// The checkpoint's folder that it was held from; absent: it is not held.
  std::optional<FolderId> held_from(const watch::Sighting& seen) const;
  /// It is recorded: what was held is the lease of a row, or goes as what nobody needs any more.
  void settle(const watch::Sighting& seen);
  /// Leases a complete row's files by a link to the folder `dir`, which nobody but us removes.
  Status refer(const state::Evaluation& row, const std::string& dir);
  /// Takes the leases of what waits and is read in place for a reason that may have passed, every
  /// few seconds. All that was seen is recorded; `active` is read from now.
  Status take_late(std::int64_t run_id, std::optional<std::int64_t> active, Slice& slice);
  /// When that has something to do; absent: nothing is in place for such a reason.
  std::optional<MonotonicTime> late_due() const;
  /// An evaluation's lease, taken now if need be. Absent: it cannot run now, or never; the row says
  /// why.
  Result<std::optional<stage::Lease>> of(const state::Evaluation& row);
  /// The folder from which an evaluation would be read now; "": it holds no lease that is there.
  /// Changes nothing, and does not ask whether the files are the ones that were leased.
  std::string dir_of(const state::Evaluation& row) const;
  /// Gives the lease back, unless another evaluation of the same weights holds it too, averages to
  /// come need it, or it is kept as one of the best.
  void release(const state::Evaluation& row);
  /// Removes the folder of a lease for lack of room, whatever else may need it; `holders`: all rows
  /// that hold it. release() follows for each of them once it has ended, before or after this.
  Status drop_folder(const std::string& name, const std::vector<state::Evaluation>& holders);
  /// Moves the lease of a row to another one of the same weights, which becomes leased. False: it
  /// has its own, or needs none.
  Result<bool> hand_over(const state::Evaluation& from, const state::Evaluation& to);
  /// Whether the row's lease is a folder of ours that is there.
  bool holds_folder(const state::Evaluation& row) const;
  /// The names of all that are there, of whatever row.
  std::vector<std::string> names() const { return stage_.names(); }
  /// Makes a row that ended complete again, and leases it from the folder that stayed for another
  /// reason (as one of the best, for averages). False: there is none with these weights.
  Result<bool> revive_from_kept(const state::Evaluation& row);
  /// True, and forgotten: the files were read in place and are gone.
  bool vanished_in_place(const state::Evaluation& row);
  /// Another run: nothing that was held is of this one.
  void forget() {
    held_.clear();
    unrecorded_.clear();
    exposed_.clear();
    exposed_of_.reset();
  }

 private:
  Result<std::optional<stage::Lease>> lease_of_another(const state::Evaluation& row) const;
  Result<std::optional<stage::Lease>> lease_without_row(const state::Evaluation& row) const;
  Result<std::optional<stage::Lease>> take_up(const state::Evaluation& row, stage::Lease lease);
  Result<stage::Lease> reopen(const state::Evaluation& row,
                              const std::vector<std::string>& in_place) const;
  Status form_again(const state::Evaluation& row, const std::string& why);
  Status find_exposed(std::int64_t run_id);
  Status take_late(const state::Evaluation& row);

  const Clock& clock_;
  state::Store& store_;
  stage::Stage& stage_;
  watch::Watcher& watcher_;
  const DiskSpace& space_;
  Averages& averages_;
  BestKept& best_;
  const DiskView& view_;
  struct Unrecorded {
    std::string name;
    std::string fingerprint;  ///< of what was seen
    FolderId folder;          ///< it lay in
  };
  std::map<std::int64_t, stage::Lease> held_;  ///< by evaluation
  std::map<DiskView::Key, Unrecorded> unrecorded_;
  std::set<std::int64_t> exposed_;          ///< evaluations in place whose leases may yet be taken
  std::optional<std::int64_t> exposed_of_;  ///< the run whose rows were asked for them
  std::int64_t refused_late_ = 0;
  MonotonicTime late_at_{};
};

}  // namespace evalcar::run
