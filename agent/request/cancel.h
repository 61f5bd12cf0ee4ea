// `evalcar cancel ID`, whoever holds the database.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "agent/request/request.h"
#include "store/state/store.h"

namespace evalcar::request {

/// The reason of a row that ended so. `evalcar retry` of its step takes it up again, nothing else.
inline constexpr std::string_view kCancelled = "cancelled by hand (evalcar cancel)";

/// Ends an evaluation of the given run (absent: of any) that has not been measured: skipped, or
/// published as before where only its rest was to be measured. Its lease, and the evaluator that
/// may be at work on it, are the caller's. kNothing: it ended already, or there is none.
Answer cancel_evaluation(state::Store& store, std::optional<std::int64_t> run_id,
                         std::int64_t evaluation);

}  // namespace evalcar::request
