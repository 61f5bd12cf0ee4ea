// `evalcar prune`, whoever holds the database.
#pragma once

#include <cstdint>
#include <optional>

#include "agent/request/request.h"
#include "store/base/clock.h"
#include "store/base/file_system.h"
#include "store/state/store.h"

namespace evalcar::request {

/// Prunes the given run (absent: the newest generation of each) by the rules asked for, some steps
/// of it a call: `more` of the answer says whether there are others.
Answer prune_runs(FileSystem& files, const Clock& clock, state::Store& store,
                  std::optional<std::int64_t> run_id, const Prune& asked);

}  // namespace evalcar::request
