#include "agent/cli/checkpoint_choice.h"

#include <algorithm>

#include "store/checkpoint/home_place.h"
#include "store/checkpoint/output_place.h"

namespace evalcar::cli {
namespace {

using checkpoint::Completeness;
using checkpoint::LayoutOptions;
using checkpoint::WeightsKind;

constexpr std::string_view kStepPlace = "{step}";
/// DeepSpeed's folder within a checkpoint, and HuggingFaceStorageWriter's.
constexpr std::string_view kPartitions = "global_step{step}";
constexpr std::string_view kSharded = "sharded";

/// The path without slashes at its end.
std::string trimmed(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

bool is_named(const std::string& name) { return !name.empty() && name != "." && name != ".."; }

/// The real path of the folder that a path lies in.
Result<std::string> real_parent(const FileSystem& files, const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return files.real_path(".");
  return files.real_path(slash == 0 ? "/" : path.substr(0, slash));
}

/// "" if these weights are complete.
std::string why_incomplete(const FileSystem& files, const std::string& folder, WeightsKind kind,
                           const LayoutOptions& layout) {
  const auto report = checkpoint::inspect_layout(files, folder, layout);
  if (!report.has_value()) return report.error().message;
  for (const checkpoint::KindState& state : report->kinds) {
    if (state.kind != kind) continue;
    if (state.completeness == Completeness::kComplete) return "";
    return state.reason.starts_with(folder) ? state.reason : folder + ": " + state.reason;
  }
  return folder + ": has no " + std::string(checkpoint::weights_kind_name(kind)) + " weights";
}

}  // namespace

Result<std::string> real_checkpoint_path(const FileSystem& files, const std::string& path,
                                         const std::string& expected) {
  auto real = files.real_path(path);
  if (real.has_value() || real.error().code != ErrorCode::kNotFound) return real;
  return make_error(ErrorCode::kNotFound, path + ": no such folder; expected " + expected);
}

std::vector<std::string> checkpoint_patterns(const std::string& pattern) {
  if (!pattern.empty()) return {pattern};
  return {"checkpoint-{step}", "step-{step}", "checkpoint_{step}"};
}

std::optional<std::int64_t> step_in_name(const std::string& folder,
                                         const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    if (const auto step = checkpoint::step_of_name(base_name(folder), pattern)) return step;
  }
  return std::nullopt;
}

Result<NamedFolder> find_named_folder(const FileSystem& files, const std::string& path,
                                      const std::vector<std::string>& patterns,
                                      const LayoutOptions& layout, const std::string& expected) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string real, real_checkpoint_path(files, path, expected));
  const std::string given = trimmed(path);
  const auto parent = real_parent(files, given);
  std::vector<std::string> names = {real};
  if (is_named(base_name(given)) && parent.has_value()) {
    names.push_back(join_path(*parent, base_name(given)));
  }
  for (const std::string& name : names) {
    if (step_in_name(name, patterns)) return NamedFolder{name, {}};
  }
  for (const std::string& name : names) {
    const std::string inner = base_name(name);
    if (inner != layout.shard_folder && inner != layout.ema_shard_folder) continue;
    LayoutOptions options = layout;
    WeightsKind ignored = WeightsKind::kRegular;
    select_shard_folder(inner, options, ignored);
    if (checkpoint::inspect_layout(files, parent_path(name), options).has_value()) {
      return NamedFolder{parent_path(name), inner};
    }
  }
  return NamedFolder{real, {}};
}

void select_shard_folder(const std::string& name, LayoutOptions& layout, WeightsKind& weights) {
  layout.shard_folders_only = true;
  if (name == layout.ema_shard_folder) {
    weights = WeightsKind::kEma;
    return;
  }
  layout.shard_folder = name;
  if (weights == WeightsKind::kEma) layout.ema_shard_folder = name;
}

std::string StepsOfRun::name(std::int64_t step) const {
  std::string text = pattern;
  return text.replace(text.find(kStepPlace), kStepPlace.size(), std::to_string(step));
}

Result<StepsOfRun> steps_of_run(const FileSystem& files, const std::string& run,
                                const std::vector<std::string>& patterns) {
  EVALCAR_ASSIGN_OR_RETURN(const auto entries, files.list(run));
  StepsOfRun found;
  for (const std::string& pattern : patterns) {
    found.pattern = pattern;
    for (const DirectoryEntry& entry : entries) {
      if (const auto step = checkpoint::step_of_name(entry.name, pattern)) {
        found.steps.push_back(*step);
      }
    }
    if (!found.steps.empty()) break;
  }
  std::sort(found.steps.rbegin(), found.steps.rend());
  return found;
}

CompleteCheckpoints complete_checkpoints(const FileSystem& files, const std::string& run,
                                         const StepsOfRun& steps, WeightsKind weights,
                                         const LayoutOptions& layout, bool all) {
  LayoutOptions without_config = layout;
  without_config.weights_only = true;
  for (const LayoutOptions& wanted : {layout, without_config}) {
    CompleteCheckpoints found;
    for (const std::int64_t step : steps.steps) {
      const std::string folder = join_path(run, steps.name(step));
      std::string why = why_incomplete(files, folder, weights, wanted);
      if (!why.empty()) {
        found.left_out.push_back(std::move(why));
        continue;
      }
      found.folders.insert(found.folders.begin(), folder);
      if (!all) break;
    }
    if (!found.folders.empty()) return found;
  }
  return {};
}

Result<std::string> merged_place(const FileSystem& files, const std::string& folder,
                                 const std::vector<std::string>& patterns,
                                 const std::string& kind) {
  const std::string outermost = checkpoint::outermost_checkpoint(files, folder);
  const bool is_final_model = outermost == folder && checkpoint::is_run_folder(files, folder);
  const std::string run = is_final_model ? folder : parent_path(outermost);
  const auto home = checkpoint::home_place(files, run, patterns.front());
  EVALCAR_RETURN_IF_ERROR(checkpoint::check_home_owner(files, run, home));
  const std::string place = join_path(home.path, "merged");
  const std::string name = base_name(folder);
  auto step = step_in_name(folder, patterns);
  if (!step) step = checkpoint::step_of_name(name, kPartitions);
  const bool is_part = step || name == kSharded;
  if (!step) step = step_in_name(outermost, patterns);
  const bool is_one_of_many = folder != outermost && !is_part;  // a named adapter of PEFT's
  return join_path(join_path(place, step ? std::to_string(*step) : base_name(outermost)),
                   is_one_of_many ? name + "_" + kind : kind);
}

}  // namespace evalcar::cli
