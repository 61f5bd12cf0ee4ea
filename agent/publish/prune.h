// Retention of what grows: results files and scored samples of old steps. The numbers are never
// touched: lines of metrics.jsonl, event files and the tables of metrics stay as they are, and so
// does everything of the best steps.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "store/base/clock.h"
#include "store/base/file_system.h"
#include "store/state/store.h"

namespace evalcar::publish {

/// Where both are given, what either of them keeps is kept.
struct PruneOptions {
  std::optional<std::int64_t> keep;  ///< so many of the newest steps that have results
  std::optional<std::chrono::seconds> older_than;  ///< only what was published longer ago
  bool dry_run = false;
  std::size_t steps_at_once = 20;  ///< the rest in another call: the agent has other work too
};

struct PrunedStep {
  std::int64_t step = 0;
  std::int64_t files = 0;
  std::uint64_t bytes = 0;
  std::int64_t samples = 0;
};

struct Pruned {
  std::vector<PrunedStep> steps;   ///< that lost something (or would)
  std::int64_t left = 0;           ///< steps for another call
  std::vector<std::int64_t> best;  ///< steps that stay for that reason alone
};

/// Prunes a run. A step stays whole if one of its evaluations is not at its end, still has a lease
/// to be completed from, is the best of its type by any metric or by best.json, or has kept
/// weights. Doing it twice is harmless; killed anywhere, another call goes on. An error ends it;
/// what was done stays done.
Result<Pruned> prune(FileSystem& files, const Clock& clock, state::Store& store,
                     std::int64_t run_id, const PruneOptions& options);

/// For people: a line a step, and what stays.
std::string describe(const Pruned& pruned, const PruneOptions& options);

}  // namespace evalcar::publish
