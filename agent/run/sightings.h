// What the watcher saw, on its way into the store: in which order it is recorded, and in which
// generation of its checkpoint. A generation begins in state::Store (observe_checkpoint), when the
// Recorder tells it of weights that were rewritten; here it is seen to that everything that one
// save wrote comes into the same one.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "agent/run/averages.h"
#include "agent/run/best_kept.h"
#include "agent/run/current_run.h"
#include "agent/run/disk_view.h"
#include "agent/run/recorder.h"
#include "agent/run/slice.h"
#include "agent/watch/watcher.h"

namespace evalcar::run {

/// Not thread-safe. All references must outlive it.
class Sightings {
 public:
  Sightings(CurrentRun& run, Recorder& recorder, Averages& averages, BestKept& best)
      : run_(run), recorder_(recorder), averages_(averages), best_(best) {}

  /// While nothing can be recorded (a full disk), only the newest state of a kind counts; but one
  /// that went must end as lost, and so must have been there.
  void note(watch::Sighting seen);
  /// Newest first: what comes later in the turn may fail, and the newest matters most. True:
  /// something was recorded. An error is of the moment: what it came at is recorded by a later
  /// call.
  Result<bool> record(Slice& slice);
  /// Nothing can be recorded now: keeps the files of what is complete (Leases::hold).
  void hold(Slice& slice);
  /// All that was noted is recorded.
  bool empty() const { return untold_.empty(); }
  /// The last record() could not do all of it.
  bool was_cut() const { return was_cut_; }
  /// Another run: nothing that was noted is of this one.
  void forget();

 private:
  using Untold = std::map<DiskView::Key, std::vector<watch::Sighting>>;
  Untold::iterator next();
  Status record(const DiskView::Key& key, std::vector<watch::Sighting>& sightings);
  void record_again(std::int64_t step, checkpoint::WeightsKind but);

  CurrentRun& run_;
  Recorder& recorder_;
  Averages& averages_;
  BestKept& best_;
  /// Of each kind what it is now, and before that what it was until it went.
  Untold untold_;
  std::map<DiskView::Key, watch::Sighting> recorded_;  ///< complete, since untold_ was empty last
  bool was_cut_ = false;
};

}  // namespace evalcar::run
