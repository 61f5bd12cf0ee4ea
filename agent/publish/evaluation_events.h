// An evaluation as an event of TensorBoard: its numbers as scalars, and its table as text.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "agent/publish/event_log.h"
#include "agent/publish/metrics_line.h"
#include "agent/publish/metrics_log.h"
#include "agent/publish/publisher.h"

namespace evalcar::publish {

/// The names of its metrics beside their own, where publish.aliases says so.
const Aliases& published_aliases(const PublisherOptions& options);

/// Whether a line of metrics.jsonl tells the score of a part.
bool is_interim_line(const std::string& line);

/// The event of an evaluation. `line`: its line, of which numbers that an earlier line of the same
/// weights told are left out, since they have an event (`log` has both lines); "" = none is left
/// out. Absent where it would hold no number.
Result<std::optional<TimedEvent>> event_of(const PublisherOptions& options, const MetricsLog& log,
                                           const state::Evaluation& evaluation,
                                           const protocol::EvaluationResult& result,
                                           const std::string& line = "");

}  // namespace evalcar::publish
