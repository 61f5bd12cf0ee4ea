// What earlier lives of an output directory left, taken up when a run is entered: before that
// nothing is chosen to be measured, and no lease is removed.
#pragma once

#include <set>
#include <string>

#include "agent/config/settings.h"
#include "agent/run/current_run.h"
#include "agent/run/leases.h"
#include "agent/run/slice.h"
#include "agent/run/surroundings.h"
#include "agent/run/wanted.h"

namespace evalcar::run {

/// Not thread-safe. All references must outlive it.
class TakeUp {
 public:
  TakeUp(const Surroundings& around, const config::Settings& settings, state::Store& store,
         const stage::Stage& stage, const CurrentRun& run, const Wanted& wanted, Leases& leases);

  /// The database is told the settings that count now. Open rows of the directory's other runs end:
  /// their files are not here. Rows of this one that ended so, and whose lease came back with it,
  /// go on; so do those that another configuration had ended, where their weights are kept. Leases
  /// that no row knows become rows. For a known run; goes on with the next call where a slice is
  /// cut.
  Status step();
  /// All of that is done.
  bool done() const { return done_; }
  /// Another run: all of it is to be done for that one.
  void forget();

 private:
  Status end_older_generations();
  Status take_up_rows(Slice& slice);
  Status take_up_unmeasured(Slice& slice);
  Status end_other_run(const state::Run& other, Slice& slice);

  const Surroundings& around_;
  const config::Settings& settings_;
  state::Store& store_;
  const stage::Stage& stage_;
  const CurrentRun& run_;
  const Wanted& wanted_;
  Leases& leases_;
  std::set<std::string> adopted_;  ///< leases that adopt_leases() has judged
  bool done_ = false;
};

}  // namespace evalcar::run
