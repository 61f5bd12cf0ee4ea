// The numbers of a run as Prometheus reads them (text format 0.0.4), named by its conventions.
#pragma once

#include <optional>
#include <string>

#include "agent/publish/status.h"
#include "store/base/clock.h"
#include "store/base/result.h"
#include "store/state/reader.h"

namespace evalcar::publish {

/// What the newest run of the database says: how its evaluations stand, how far behind they are,
/// the latest and the best number of each series. `agent` absent: none runs. Labels have no step,
/// so that a long run has no more series than a short one.
Result<std::string> prometheus_text(const state::Reader& reader, const Clock& clock,
                                    const std::optional<AgentFacts>& agent);

}  // namespace evalcar::publish
