// The numbers of a run as Prometheus reads them (text format 0.0.4), named by its conventions.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/publish/status.h"
#include "store/base/clock.h"
#include "store/base/result.h"
#include "store/state/reader.h"

namespace evalcar::publish {

/// A database, and what the agent that has it says of itself; absent: none runs.
struct PrometheusSource {
  const state::Reader* reader = nullptr;  ///< null: it cannot be read
  std::optional<AgentFacts> agent = {};
  std::string run = {};       ///< by whose name it is known where it cannot be read; "": not known
  std::string database = {};  ///< its file: its name stands for that of the run then
  /// Told why it cannot be read, if it is a question to it that fails.
  std::function<void(const Error&)> failed = {};
};

/// What the newest run of each database says: how its evaluations stand, how far behind they are,
/// the latest and the best number of each series. The agent is the same for all of them. Labels
/// have no step, so that a long run has no more series than a short one. Each run fails alone: it
/// has `evalcar_up` 0 then, and nothing else. Labels are UTF-8 whatever the names are.
std::string prometheus_text(const std::vector<PrometheusSource>& sources, const Clock& clock);

}  // namespace evalcar::publish
