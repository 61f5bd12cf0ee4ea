// `evalcar retry STEP`, whoever holds the database.
#pragma once

#include <cstdint>
#include <optional>

#include "agent/request/request.h"
#include "store/state/store.h"

namespace evalcar::request {

/// Makes the evaluations of a step that failed, or ended without numbers, wait again. Only those of
/// the newest content of that step in the given run (absent: the newest generation of each run):
/// the files of an older one are gone, and those that are there now are others. `when`: "now", for
/// the text.
Answer retry_step(state::Store& store, std::optional<std::int64_t> run_id, std::int64_t step,
                  const char* when);

}  // namespace evalcar::request
