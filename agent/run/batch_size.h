// How many prompts an evaluation takes at once: less after its process was killed for its memory.
#pragma once

#include <cstdint>
#include <vector>

#include "agent/config/settings.h"
#include "store/state/types.h"

namespace evalcar::run {

/// Of the configured number and what a job allows; 0: as many as fit.
std::int64_t asked_batch_size(const config::Settings& settings, const state::Evaluation& row);

/// What the next attempt takes of `asked`; 0: as many as fit. A process that was killed for its
/// memory could not settle that itself: each such failure in a row of tries quarters it, and the
/// last try has 1.
std::int64_t next_batch_size(std::int64_t asked, const state::Evaluation& row,
                             const std::vector<state::Attempt>& attempts,
                             std::int64_t most_attempts);

}  // namespace evalcar::run
