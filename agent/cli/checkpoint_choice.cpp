#include "agent/cli/checkpoint_choice.h"

#include <algorithm>

#include "agent/cli/usage_error.h"
#include "store/base/text.h"
#include "store/checkpoint/home_place.h"
#include "store/checkpoint/output_place.h"
#include "store/checkpoint/top_numbers.h"

namespace evalcar::cli {
namespace {

using checkpoint::Completeness;
using checkpoint::Layout;
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
    const bool is_usual = inner == layout.shard_folder || inner == layout.ema_shard_folder;
    LayoutOptions options = layout;
    WeightsKind kind = WeightsKind::kRegular;
    if (!select_shard_folder(inner, options, kind).has_value()) continue;
    const auto around = checkpoint::inspect_layout(files, parent_path(name), options);
    // By another name only ranks' shards make it one (verl's "actor"): a DCP folder may stand
    // alone.
    if (around.has_value() && (is_usual || around->layout == Layout::kLmmsEngineFsdp2)) {
      return NamedFolder{parent_path(name), inner};
    }
  }
  return NamedFolder{real, {}};
}

Result<NamedFolder> find_input(const FileSystem& files, const std::string& path,
                               const std::vector<std::string>& patterns,
                               const std::string& state_dict_dirname, LayoutOptions layout,
                               const std::string& expected) {
  auto named = find_named_folder(files, path, patterns, layout, expected);
  if (state_dict_dirname.empty() || !named.has_value() || !named->shard_folder.empty()) {
    return named;
  }
  layout.shard_folder = state_dict_dirname;
  return find_named_folder(files, path, patterns, layout, expected);
}

Status select_shard_folder(const std::string& name, LayoutOptions& layout, WeightsKind& weights) {
  const bool is_ema = name == layout.ema_shard_folder;
  if (name == layout.shard_folder && !is_ema && weights == WeightsKind::kEma) {
    return usage_error(name + ": has the regular weights, not those of --weights ema");
  }
  layout.shard_folders_only = true;
  if (is_ema) {
    weights = WeightsKind::kEma;
    return {};
  }
  layout.shard_folder = name;
  if (weights == WeightsKind::kEma) layout.ema_shard_folder = name;
  return {};
}

std::optional<std::int64_t> step_of_checkpoint(const FileSystem& files, const std::string& folder,
                                               const std::vector<std::string>& patterns) {
  auto step = step_in_name(folder, patterns);
  if (!step) step = checkpoint::step_of_name(base_name(folder), kPartitions);
  if (!step) step = step_in_name(checkpoint::outermost_checkpoint(files, folder), patterns);
  return step;
}

std::string two_steps(const FileSystem& files, const std::string& folder,
                      const std::vector<std::string>& patterns) {
  const auto named = step_in_name(folder, patterns);
  const auto numbers =
      checkpoint::top_level_numbers(files, join_path(folder, "trainer_state.json"), {"global_step"},
                                    checkpoint::kMaxTrainerStateBytes);
  if (!named || !numbers.has_value()) return "";
  const auto told = checkpoint::whole_number(*numbers, "global_step");
  if (!told.has_value() || *told == *named) return "";
  return printable(folder) + " is of step " + std::to_string(*named) +
         " by its name, but of step " + std::to_string(*told) + " by its trainer_state.json";
}

std::string pattern_hint(const FileSystem& files, const std::string& run) {
  const std::string other = checkpoint::checkpoint_in_run(files, run);
  if (other.empty()) return "";
  const std::size_t number = other.find_last_not_of("0123456789") + 1;
  return "checkpoints such as " + printable(other) + " in it are chosen by --pattern \"" +
         printable(other.substr(0, number)) + std::string(kStepPlace) + "\"";
}

Status check_pattern(const std::string& pattern) {
  if (pattern.empty()) return {};
  const std::size_t place = pattern.find(kStepPlace);
  if (place != std::string::npos && pattern.find(kStepPlace, place + 1) == std::string::npos &&
      pattern.find('/') == std::string::npos) {
    return {};
  }
  return usage_error("--pattern " + pattern +
                     ": expected a folder's name with one {step}, such as checkpoint-{step}");
}

Status check_dirname(std::string& name) {
  name = trimmed(std::move(name));
  if (name.find('/') == std::string::npos && name != "." && name != "..") return {};
  return usage_error("--state_dict_dirname " + name +
                     ": expected the name of a folder within the checkpoint");
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

Error no_checkpoints(const FileSystem& files, const std::string& folder,
                     const std::string& pattern) {
  std::string names;
  for (const std::string& each : checkpoint_patterns(pattern)) {
    names += (names.empty() ? "" : " or ") + each;
  }
  const std::string hint = pattern.empty() ? pattern_hint(files, folder) : "";
  return make_error(ErrorCode::kUnavailable,
                    folder + ": is neither a checkpoint nor a run folder with " + names + " in it" +
                        (hint.empty() ? "" : "; " + hint));
}

Error explain_missing(const FileSystem& files, const std::string& folder, Error error,
                      const LayoutOptions& layout) {
  if (!layout.shard_folders_only || error.code != ErrorCode::kUnavailable) return error;
  const auto report = checkpoint::inspect_layout(files, folder, {.weights_only = true});
  if (!report.has_value() || report->layout == Layout::kLmmsEngineFsdp2 ||
      report->layout == Layout::kDcp) {
    return error;
  }
  return usage_error("--state_dict_dirname: " + error.message + "; it is of the layout " +
                     std::string(checkpoint::layout_name(report->layout)) +
                     ", whose weights lie in no such folder");
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
  const bool is_part = step_in_name(folder, patterns) ||
                       checkpoint::step_of_name(name, kPartitions) || name == kSharded;
  const auto step = step_of_checkpoint(files, folder, patterns);
  const bool is_one_of_many = folder != outermost && !is_part;  // a named adapter of PEFT's
  return join_path(join_path(place, step ? std::to_string(*step) : base_name(outermost)),
                   is_one_of_many ? name + "_" + kind : kind);
}

}  // namespace evalcar::cli
