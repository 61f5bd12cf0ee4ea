// What the watcher tells becomes rows of the store, leases, and ends with their reasons.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "agent/run/checkpoint_link.h"
#include "agent/run/current_run.h"
#include "agent/run/disk_view.h"
#include "agent/run/leases.h"
#include "agent/run/slice.h"
#include "agent/run/wanted.h"

namespace evalcar::run {

/// Not thread-safe. All references must outlive it.
class Recorder {
 public:
  /// Of a link to the results of a step, for checkpoint_link.
  struct Links {
    config::LinkInCheckpoint mode = config::LinkInCheckpoint::kNever;
    ResultsPlace results;  ///< of all steps
    std::string pattern;   ///< watch.pattern
  };
  Recorder(FileSystem& files, state::Store& store, const CurrentRun& run, const Wanted& wanted,
           Leases& leases, DiskView& view, InFlight& in_flight, Links links);

  /// Before anything of a turn is recorded: which checkpoints there are says which one is the
  /// newest, and which is the n-th.
  void note_presence(const watch::Sighting& seen);
  /// All that was noted has its rows, or has none.
  void all_is_told();
  /// Records one sighting of the current run; complete weights that are wanted are leased.
  Status record(const watch::Sighting& seen);
  /// Complete weights cannot be recorded now: keeps their files until they are, see Leases::hold.
  void hold(const watch::Sighting& seen);
  bool may_hold() { return leases_.may_hold(); }
  bool is_held(const watch::Sighting& seen) const { return leases_.is_held(seen); }
  /// As record(), of weights that lie whole in a place of their own (snapshots.h), which the lease
  /// refers to. Returns their checkpoint's row.
  Result<std::int64_t> record_snapshot(const watch::Sighting& seen);
  /// Records what is complete of a step once more: more of it may be wanted now. True: an
  /// evaluation of it that is wanted waits.
  Result<bool> record_again(std::int64_t step);
  /// Marks checkpoints that went while no agent was there to see it. Once after a run was entered,
  /// before anything new of it is recorded: what was gone before that came has to be told.
  /// False: not all of it was done, since the slice was cut or the directory itself is gone.
  Result<bool> mark_vanished(Slice& slice);
  /// Ends what went with them, and what went since: nothing will ever tell of it again. Once
  /// everything that is there was recorded. False as in mark_vanished().
  Result<bool> end_vanished(Slice& slice);
  /// At the end of --once: what is torn ends as quarantined, with its reason.
  Status close_torn();
  /// The row of the checkpoint that the folder of this step was last recorded in; 0: of none yet.
  std::int64_t checkpoint_of(std::int64_t step) const {
    const auto found = checkpoint_of_step_.find(step);
    return found == checkpoint_of_step_.end() ? 0 : found->second;
  }
  /// True: the configuration leaves it out, and the row says so. What runs now is let finish.
  Result<bool> end_if_unwanted(const state::Evaluation& row);
  /// Steps whose regular weights are not whole, and will not become so by waiting.
  std::set<std::int64_t> torn_steps() const;
  /// A folder that had a row has been written anew, until told_anew(): best.json may name it.
  bool written_anew() const { return written_anew_; }
  void told_anew() { written_anew_ = false; }
  /// Another run: nothing that is remembered is of this one.
  void forget();

 private:
  Result<state::Observed> observe(const watch::Sighting& seen);
  /// One for each cadence that tasks have.
  Result<std::vector<state::Evaluation>> rows_in(const state::Checkpoint& checkpoint,
                                                 const watch::Sighting& seen);
  Result<std::vector<state::Evaluation>> rows_of(const watch::Sighting& seen);
  state::CheckpointObservation observation_of(const watch::Sighting& seen) const;
  Status supersede_older(const state::Checkpoint& now);
  Status record_waiting(const watch::Sighting& seen, bool first);
  Status record_complete(const watch::Sighting& seen);
  Result<bool> make_complete(const state::Evaluation& row, const watch::Sighting& seen);
  Status record_not_started(const watch::Sighting& seen);
  Status record_unreadable(const watch::Sighting& seen);
  Status record_overtaken(const watch::Sighting& seen);
  Status set_aside(const watch::Sighting& seen, const state::AttemptFailure& failure);
  Status record_gone(const watch::Sighting& seen);
  bool is_there(const std::string& folder) const;
  Status lose(const state::Evaluation& row, const std::string& reason);

  FileSystem& files_;
  state::Store& store_;
  const CurrentRun& run_;
  const Wanted& wanted_;
  Leases& leases_;
  DiskView& view_;
  InFlight& in_flight_;
  Links links_;
  std::map<DiskView::Key, watch::Sighting> torn_;            ///< the newest content is not whole
  std::map<std::int64_t, std::int64_t> checkpoint_of_step_;  ///< its row
  bool written_anew_ = false;
};

}  // namespace evalcar::run
