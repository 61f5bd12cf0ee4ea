// The one document that the page shows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/publish/status.h"
#include "store/base/clock.h"
#include "store/base/result.h"
#include "store/state/reader.h"

namespace evalcar::page {

/// {"run", "live", "status": the document of `status`, "metrics": [{"step", "checkpoint_type",
/// "task", "metric", "filter", "value", "stderr", "n", "missing", "higher_is_better",
/// "evaluation"}]} of one run; of evaluations that ended, 300 at most. kNotFound: no run of that
/// name.
Result<std::string> page_data(const state::Reader& reader, const Clock& clock,
                              const std::string& run,
                              const std::optional<publish::AgentFacts>& agent, bool live);

/// What a page that lives is told besides.
struct LivePart {
  std::vector<std::string> runs;  ///< those that it may ask for
  bool with_metrics = true;       ///< else whoever sees another "version" asks for them
};
/// The same document of a run that is served, with "runs" and "version": another one whenever
/// "metrics" says something else.
Result<std::string> live_page_data(const state::Reader& reader, const Clock& clock,
                                   const std::string& run,
                                   const std::optional<publish::AgentFacts>& agent,
                                   const LivePart& part);

}  // namespace evalcar::page
