// The one document that the page shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/page/live_numbers.h"
#include "agent/publish/status.h"
#include "store/base/clock.h"
#include "store/base/result.h"
#include "store/state/reader.h"

namespace evalcar::page {

/// {"run", "live", "status": the document of `status`, "metrics": [{"step", "checkpoint_type",
/// "task", "metric", "filter", "value", "stderr", "n", "missing", "higher_is_better",
/// "evaluation", maybe "configured": false}]} of one run; of evaluations that ended, 300 at most.
/// kNotFound: no run of that name.
Result<std::string> page_data(const state::Reader& reader, const Clock& clock,
                              const std::string& run,
                              const std::optional<publish::AgentFacts>& agent, bool live);

/// The same document of a run that is served, with "runs" and "version": another one whenever
/// "metrics" would say something else. To who has the numbers of an earlier version only what
/// changed since is told, with "since" (live_numbers.h). It is told with every heartbeat, so it
/// keeps what it read: rows are read again only if the database has changed, and numbers only if
/// one of theirs has. Not thread-safe; for one connection.
class LiveDocument {
 public:
  explicit LiveDocument(std::string run) : run_(std::move(run)) {}

  struct Wish {
    std::vector<std::string> runs;  ///< those that may be asked for
    bool with_metrics = true;       ///< else whoever sees another "version" asks for them
    std::string since;              ///< the version that the asker has; "": none
  };
  /// kNotFound: no run of that name.
  Result<std::string> text(const state::Reader& reader, const Clock& clock,
                           const std::optional<publish::AgentFacts>& agent, const Wish& wish);
  /// How often all numbers were read.
  std::size_t readings() const { return readings_; }

 private:
  Status read_numbers(const state::Reader& reader, const Clock& clock);

  const std::string run_;
  std::optional<std::int64_t> run_id_;
  publish::StatusRows rows_;
  std::int64_t data_version_ = -1;
  std::optional<std::uint64_t> seen_;  ///< state::Reader::numbers_version() of `numbers_`
  LiveNumbers numbers_;
  std::size_t readings_ = 0;
};

}  // namespace evalcar::page
