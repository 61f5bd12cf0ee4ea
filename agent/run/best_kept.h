// publish.keep_best = K: the weights of the K best checkpoints of a kind outlive the trainer's
// retention, as leases that no evaluation needs any more.
//
// The best by numbers of today's settings; while those are fewer than K, the best of earlier
// settings stay, too. Which they are follows from the rows alone, so that a start finds the same
// ones again: whatever was released stays so, and the leases of those that were overtaken go.
// Where the disk guard gave one up, the next best of which the weights are there takes its place.
// `kept_path` of best.json is the folder of such a lease; a hard link shares the inode, so it is
// only named while its files are those that were measured.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/config/settings.h"
#include "agent/publish/publisher.h"
#include "agent/run/averages.h"
#include "agent/run/disk_space.h"
#include "agent/run/disk_view.h"
#include "agent/run/slice.h"
#include "agent/run/surroundings.h"
#include "agent/stage/stage.h"
#include "store/state/store.h"

namespace evalcar::run {

/// Not thread-safe. All references must outlive it.
class BestKept {
 public:
  BestKept(const Surroundings& around, const config::PublishSettings& settings, state::Store& store,
           stage::Stage& stage, const DiskSpace& space, const Averages& averages,
           const DiskView& view, KeptForBest& kept);

  /// Something was measured or recorded: the next step() looks again.
  void look_again() { due_ = true; }
  /// Names the best again, where something changed. Before a result is published, so that best.json
  /// tells the place.
  Status rank(std::int64_t run_id);
  /// The same, and the leases that nobody needs any more go. After Averages::step(). An error is of
  /// the moment: the next step() tries again, and goes on where the slice was cut.
  Status step(std::int64_t run_id, Slice& slice);
  /// Leases that nobody needs are still to go.
  bool trimming() const { return trim_due_ && !due_; }
  /// What is kept is what was ranked last, and nothing else.
  bool settled() const { return !due_ && !trim_due_; }
  /// Something is to be ranked.
  bool due() const { return due_; }
  /// Whether the lease of this row, which lets go of it, stays or may: it was measured, but not
  /// ranked yet. If it does not stay after all, step() removes it.
  bool hold_back(const state::Evaluation& row);
  /// A lease that nobody may need any more: step() removes it, unless somebody does.
  void let_go(const std::string& name) {
    let_go_.insert(name);
    trim_due_ = true;
  }
  /// Names of the leases that may be kept: at a start, before step().
  Result<std::vector<std::string>> names_of(std::int64_t run_id) const;
  /// Whether the lease of this row stays, by the last ranking.
  bool holds(const state::Evaluation& row) const;
  /// The names of their leases.
  std::vector<std::string> worst_first() const;
  /// The lease of this name goes for lack of room, once this has returned: if it is kept as one of
  /// the best, that is taken back. Its place goes to the next best that is there, in the next
  /// step(); it is itself not taken again. `room_is_short`: also where the store cannot be told
  /// yet.
  Status give_up(const std::string& name, bool room_is_short);
  /// Whether best.json may say something else than when it was written.
  bool changed() const { return changed_; }
  void told() { changed_ = false; }
  /// Another run: nothing that is remembered is of this one.
  void forget();

 private:
  using Key = std::pair<std::int64_t, std::string>;  ///< checkpoint, kind
  struct Place {
    std::size_t rank = 0;  ///< 0: the best of its kind
    Key key;
    std::string title;  ///< for the log
    std::string dir;
  };

  Status read_kept(std::int64_t run_id);
  Result<std::vector<state::Evaluation>> bearers(const state::Evaluation& row) const;
  bool fits(const stage::Lease& lease) const;
  Result<std::string> place_of(const state::Evaluation& row);
  Status trim(Slice& slice);

  const config::PublishSettings& settings_;
  publish::PublisherOptions options_;
  state::Store& store_;
  stage::Stage& stage_;
  const DiskSpace& space_;
  const Averages& averages_;
  const DiskView& view_;
  KeptForBest& kept_;
  std::vector<Place> places_;        ///< by rank
  std::map<Key, std::string> told_;  ///< kept_path, as in the rows
  bool read_ = false;
  bool due_ = true;
  bool trim_due_ = true;
  bool trim_all_ = true;  ///< what earlier processes left is not known: every lease is looked at
  /// Names of leases that are to go unless they are kept or a row needs them.
  std::set<std::string> let_go_;
  bool changed_ = false;
  /// Leases that cannot be taken here, or were given up: not tried at every turn.
  std::set<std::string> refused_;
  std::string complaint_;
};

}  // namespace evalcar::run
