#include "agent/request/prune.h"

#include <vector>

#include "agent/publish/prune.h"
#include "agent/publish/unused_pictures.h"
#include "agent/request/newest_runs.h"
#include "store/state/location.h"

namespace evalcar::request {
namespace {

/// What one answer can hold of a dry run.
constexpr std::size_t kMaxListed = 300;

/// Pictures are of all databases: what none of them shows any more goes.
void prune_pictures(FileSystem& files, const Clock& clock, const std::string& database,
                    Answer& answer) {
  auto databases = state::list_databases(files);
  if (!databases.has_value()) return;
  databases->push_back(database);
  const auto removed =
      publish::remove_unused_pictures(files, clock, state::sample_pictures_directory(), *databases);
  if (!removed.has_value()) {
    answer.text += "\npictures of samples stay: " + removed.error().message;
    return;
  }
  if (removed->files == 0) return;
  answer.outcome = Outcome::kDone;
  answer.more = removed->more;
  answer.text += "\n" + std::to_string(removed->files) +
                 (removed->files == 1 ? " picture" : " pictures") + " that no sample shows (" +
                 std::to_string(removed->bytes) + " B) removed";
}

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
  Answer answer{all.steps.empty() ? Outcome::kNothing : Outcome::kDone,
                publish::describe(all, options), !asked.dry_run && all.left > 0};
  if (!asked.dry_run && !answer.more) prune_pictures(files, clock, store.path(), answer);
  return answer;
}

}  // namespace evalcar::request
