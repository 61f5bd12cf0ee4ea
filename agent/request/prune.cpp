#include "agent/request/prune.h"

#include <vector>

#include "agent/publish/prune.h"
#include "agent/request/newest_runs.h"

namespace evalcar::request {
namespace {

/// What one answer can hold of a dry run.
constexpr std::size_t kMaxListed = 300;

}  // namespace

Answer prune_runs(FileSystem& files, const Clock& clock, state::Store& store,
                  std::optional<std::int64_t> run_id, const Prune& asked) {
  publish::PruneOptions options{asked.keep, asked.older_than, asked.dry_run};
  if (asked.dry_run) options.steps_at_once = kMaxListed;
  std::vector<std::int64_t> runs;
  if (run_id.has_value()) {
    runs.push_back(*run_id);
  } else {
    auto newest = newest_runs(store.read());
    if (!newest.has_value()) return {Outcome::kFailed, newest.error().message};
    runs = std::move(newest).value();
  }
  publish::Pruned all;
  for (const std::int64_t run : runs) {
    const auto pruned = publish::prune(files, clock, store, run, options);
    if (!pruned.has_value()) return {Outcome::kFailed, pruned.error().message};
    all.steps.insert(all.steps.end(), pruned->steps.begin(), pruned->steps.end());
    all.best.insert(all.best.end(), pruned->best.begin(), pruned->best.end());
    all.left += pruned->left;
  }
  return {all.steps.empty() ? Outcome::kNothing : Outcome::kDone, publish::describe(all, options),
          !asked.dry_run && all.left > 0};
}

}  // namespace evalcar::request
