#include "agent/publish/prune.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

namespace evalcar::publish {
namespace {

using state::Evaluation;
using state::EvaluationState;

constexpr std::size_t kMaxEntries = 10'000;  ///< of one folder of results

/// What is known of one step.
struct Step {
  std::vector<Evaluation> published;
  std::vector<state::Publication> publications;  ///< of these, with files
  std::vector<std::string> of_jobs;              ///< folders with the files of jobs over HTTP
  std::string newest_at;                         ///< when the last of them was published
  bool stays = false;
};

/// Steps that hold the best value of some metric, of some type: the first to reach it. Of each
/// settings and question, since a configuration or a task file may come back.
Result<std::set<std::int64_t>> best_steps(const state::Reader& rows, const std::string& run) {
  EVALCAR_ASSIGN_OR_RETURN(const auto metrics, rows.metrics({.run = run}));
  using SeriesKey =
      std::tuple<std::string, std::string, std::string, std::string, std::string, std::string>;
  std::map<SeriesKey, state::MetricRow> best;
  for (const state::MetricRow& row : metrics) {  // by step
    if (!row.value.has_value()) continue;
    const SeriesKey key = {row.checkpoint_type, row.task,    row.metric, row.filter,
                           row.settings_sha256, row.question};
    const auto known = best.find(key);
    const bool better =
        known == best.end() || (row.higher_is_better ? *row.value > *known->second.value
                                                     : *row.value < *known->second.value);
    if (better) best[key] = row;
  }
  std::set<std::int64_t> steps;
  for (const auto& [key, row] : best) steps.insert(row.step);
  return steps;
}

/// What best.json names: it may go by another direction than the metric's own.
void add_best_of_file(const FileSystem& files, const std::string& path,
                      std::set<std::int64_t>& steps) {
  const auto text = read_file(files, path, std::uint64_t{1} << 20U);
  const auto json = nlohmann::json::parse(text.value_or(""), nullptr, false);
  if (!json.is_object() || !json.contains("best") || !json["best"].is_object()) return;
  for (const auto& [type, entry] : json["best"].items()) {
    if (entry.is_object() && entry.contains("step") && entry["step"].is_number_integer()) {
      steps.insert(entry["step"].get<std::int64_t>());
    }
  }
}

/// Where "/results/<step>/<kind>/" of an evaluation begins in one of its files' paths.
std::size_t place_in(const std::string& path, const Evaluation& row) {
  return path.rfind("/results/" + std::to_string(row.step) + "/" + row.kind + "/");
}

Result<std::map<std::int64_t, Step>> look_at(const state::Reader& rows, std::int64_t run_id) {
  EVALCAR_ASSIGN_OR_RETURN(const auto evaluations, rows.evaluations({.run_id = run_id}));
  EVALCAR_ASSIGN_OR_RETURN(const auto publications, rows.publications(run_id));
  std::map<std::int64_t, state::Publication> of;
  for (const state::Publication& one : publications) of[one.evaluation_id] = one;
  std::map<std::int64_t, Step> steps;
  for (const Evaluation& row : evaluations) {
    Step& step = steps[row.step];
    step.stays |= !state::is_end_state(row.state) || !row.lease_path.empty();
    if (row.state != EvaluationState::kPublished) continue;
    EVALCAR_ASSIGN_OR_RETURN(const std::string kept, rows.kept_path(row.checkpoint_id, row.kind));
    step.stays |= !kept.empty();
    step.published.push_back(row);
    const auto publication = of.find(row.id);
    if (publication == of.end()) continue;
    step.newest_at = std::max(step.newest_at, publication->second.published_at);
    if (!publication->second.files.empty()) step.publications.push_back(publication->second);
  }
  std::erase_if(steps, [](const auto& entry) { return entry.second.published.empty(); });
  return steps;
}

/// The folders that hold the results files of a step, and nothing else.
std::set<std::string> folders_of(const Step& step) {
  std::set<std::string> folders;
  for (const state::Publication& publication : step.publications) {
    const auto row =
        std::find_if(step.published.begin(), step.published.end(),
                     [&](const Evaluation& one) { return one.id == publication.evaluation_id; });
    for (const std::string& path : publication.files) {
      if (place_in(path, *row) != std::string::npos) folders.insert(parent_path(path));
    }
  }
  return folders;
}

/// Where results lie, and best.json: told by any path that was published. "" where none is known.
std::string publish_dir(const std::map<std::int64_t, Step>& steps) {
  for (const auto& [number, step] : steps) {
    for (const state::Publication& publication : step.publications) {
      for (const std::string& path : publication.files) {  // event files are elsewhere
        const std::size_t end = path.rfind("/results/" + std::to_string(number) + "/");
        if (end != std::string::npos) return path.substr(0, end);
      }
    }
  }
  return "";
}

/// `results/<step>/<kind>/job-<id>/`: no row names them, since the same evaluation may answer many.
std::vector<std::string> folders_of_jobs(const FileSystem& files, const std::string& dir,
                                         std::int64_t number, const Step& step) {
  std::vector<std::string> folders;
  std::set<std::string> kinds;
  for (const Evaluation& row : step.published) kinds.insert(row.kind);
  for (const std::string& kind : kinds) {
    const std::string of_kind = join_path(dir, "results/" + std::to_string(number) + "/" + kind);
    const auto entries = files.list(of_kind, kMaxEntries);
    if (!entries.has_value()) continue;
    for (const DirectoryEntry& entry : *entries) {
      const bool is_job = entry.type == FileType::kDirectory && entry.name.starts_with("job-");
      if (is_job) folders.push_back(join_path(of_kind, entry.name));
    }
  }
  return folders;
}

Status remove_folder(FileSystem& files, const std::string& folder, const Step& step,
                     PrunedStep& pruned, bool dry_run) {
  const auto entries = files.list(folder, kMaxEntries);
  if (!entries.has_value()) {
    return entries.error().code == ErrorCode::kNotFound ? Status() : Status(entries.error());
  }
  for (const DirectoryEntry& entry : *entries) {
    const auto info = files.info(join_path(folder, entry.name));
    if (!info.has_value()) continue;
    ++pruned.files;
    pruned.bytes += info->size_bytes;
  }
  if (dry_run) return {};
  EVALCAR_RETURN_IF_ERROR(remove_tree(files, folder));
  const std::string of_kind = parent_path(folder);
  if (!files.remove_directory(of_kind).has_value()) return {};  // another model's
  // checkpoint-N/eval may lead to the step's folder.
  const bool led_to = std::any_of(
      step.published.begin(), step.published.end(),
      [&](const Evaluation& row) { return files.info_followed(row.checkpoint_path).has_value(); });
  if (!led_to) (void)files.remove_directory(parent_path(of_kind));
  return {};
}

Result<PrunedStep> prune_step(FileSystem& files, state::Store& store, std::int64_t number,
                              const Step& step, bool dry_run) {
  PrunedStep pruned;
  pruned.step = number;
  // The files first: what is left of them after a kill is found again by the rows.
  for (const std::string& folder : step.of_jobs) {
    EVALCAR_RETURN_IF_ERROR(remove_folder(files, folder, step, pruned, dry_run));
  }
  for (const std::string& folder : folders_of(step)) {
    EVALCAR_RETURN_IF_ERROR(remove_folder(files, folder, step, pruned, dry_run));
  }
  std::vector<std::int64_t> ids;
  for (const Evaluation& row : step.published) ids.push_back(row.id);
  for (const std::int64_t id : ids) {
    EVALCAR_ASSIGN_OR_RETURN(const std::int64_t samples,
                             dry_run ? store.read().sample_count(id) : store.prune(id, ids));
    pruned.samples += samples;
  }
  return pruned;
}

std::string name_of_run(const std::vector<state::Run>& runs, std::int64_t run_id) {
  const auto found = std::find_if(runs.begin(), runs.end(),
                                  [run_id](const state::Run& run) { return run.id == run_id; });
  return found == runs.end() ? "" : found->name;
}

std::string plural(std::int64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace

Result<Pruned> prune(FileSystem& files, const Clock& clock, state::Store& store,
                     std::int64_t run_id, const PruneOptions& options) {
  EVALCAR_ASSIGN_OR_RETURN(auto steps, look_at(store.read(), run_id));
  EVALCAR_ASSIGN_OR_RETURN(const auto runs, store.read().runs());
  EVALCAR_ASSIGN_OR_RETURN(auto best, best_steps(store.read(), name_of_run(runs, run_id)));
  if (const std::string dir = publish_dir(steps); !dir.empty()) {
    add_best_of_file(files, join_path(dir, "best.json"), best);
    for (auto& [number, step] : steps) step.of_jobs = folders_of_jobs(files, dir, number, step);
  }
  const std::string limit =
      options.older_than.has_value() ? format_utc(clock.wall_now() - *options.older_than) : "";
  Pruned pruned;
  std::int64_t newer = 0;
  for (auto entry = steps.rbegin(); entry != steps.rend(); ++entry) {
    const auto& [number, step] = *entry;
    const bool kept = options.keep.has_value() && newer++ < *options.keep;
    const bool undated = step.newest_at.empty();  // jobs alone
    const bool young = options.older_than.has_value() && (undated || step.newest_at >= limit);
    const bool pruned_before = step.publications.empty() && step.of_jobs.empty();
    if (kept || young || step.stays || pruned_before) continue;
    if (best.contains(number)) {
      pruned.best.push_back(number);
    } else if (pruned.steps.size() >= options.steps_at_once) {
      ++pruned.left;
    } else {
      EVALCAR_ASSIGN_OR_RETURN(const PrunedStep done,
                               prune_step(files, store, number, step, options.dry_run));
      pruned.steps.push_back(done);
    }
  }
  return pruned;
}

std::string describe(const Pruned& pruned, const PruneOptions& options) {
  std::string text;
  for (const PrunedStep& step : pruned.steps) {
    text += "step " + std::to_string(step.step) + ": " + plural(step.files, "file") + " (" +
            std::to_string(step.bytes) + " B) and " + plural(step.samples, "sample") +
            (options.dry_run ? " would go\n" : " removed\n");
  }
  if (options.dry_run && pruned.left > 0) text += "and " + plural(pruned.left, "step") + " more\n";
  if (pruned.left == 0 && !pruned.best.empty()) {
    text += "kept for a best value: step";
    for (const std::int64_t step : pruned.best) text += " " + std::to_string(step);
    text += '\n';
  }
  if (pruned.steps.empty()) text += "nothing to prune\n";
  text.pop_back();
  return text;
}

}  // namespace evalcar::publish
