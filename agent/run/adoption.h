// Leases that no row knows, of checkpoints that are gone: the database was lost since they were
// taken. They hold all that is needed to measure them, so they become rows again before leases that
// nobody needs are removed.
#pragma once

#include <set>
#include <string>

#include "agent/run/slice.h"
#include "agent/run/wanted.h"
#include "agent/stage/stage.h"
#include "store/state/store.h"

namespace evalcar::run {

struct AdoptionPlace {
  std::string output_dir;
  std::string pattern;     ///< watch.pattern
  std::string base_model;  ///< evaluate.base_model
};

/// Once after a run was entered; again with the same `judged` (names of leases; empty at first)
/// where the slice was cut. A lease that is not wanted, whose folder is there, or whose step the
/// run knows by rows of all its tasks, of a later save or of another configuration, is left alone.
/// Of one that is not whole the rows are lost. Errors: the store's; kUnavailable: the leases do not
/// answer.
Status adopt_leases(const FileSystem& files, state::Store& store, const stage::Stage& stage,
                    const Wanted& wanted, const state::Run& run, const AdoptionPlace& place,
                    std::set<std::string>& judged, Slice& slice);

}  // namespace evalcar::run
