#include "store/checkpoint/output_place.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "store/checkpoint/home_place.h"
#include "store/checkpoint/layout.h"

namespace evalcar::checkpoint {
namespace {

Error usage(std::string message) {
  return make_error(ErrorCode::kInvalidArgument, std::move(message));
}

constexpr std::string_view kTorchtitan = "step-{step}";
constexpr std::string_view kAccelerate = "checkpoint_{step}";
constexpr std::string_view kAcceleratePrefix = "checkpoint_";
constexpr std::string_view kAccelerateFolder = "checkpoints";
/// save_state() of every release writes it, whatever is saved.
constexpr std::string_view kAccelerateFile = "random_states_0.pkl";
constexpr std::array<std::string_view, 3> kPatterns = {"checkpoint-{step}", kTorchtitan,
                                                       kAccelerate};

bool is_there(const FileSystem& files, const std::string& path) {
  return files.info(path).has_value();
}

bool has_step(std::string_view name, std::span<const std::string_view> patterns = kPatterns) {
  return std::ranges::any_of(
      patterns, [&](std::string_view pattern) { return step_of_name(name, pattern).has_value(); });
}

bool holds(const FileSystem& files, const std::string& folder,
           std::span<const std::string_view> patterns) {
  const auto entries = files.list(folder);
  if (!entries.has_value()) return false;
  return std::ranges::any_of(
      *entries, [&](const DirectoryEntry& entry) { return has_step(entry.name, patterns); });
}

bool holds_checkpoints(const FileSystem& files, const std::string& folder) {
  return holds(files, folder, kPatterns);
}

/// torchtitan looks for "step-" and a digit anywhere in a name.
bool has_step_anywhere(std::string_view name) {
  constexpr std::string_view kStep = "step-";
  for (std::size_t at = name.find(kStep); at != std::string_view::npos;
       at = name.find(kStep, at + 1)) {
    const std::size_t next = at + kStep.size();
    if (next < name.size() && name[next] >= '0' && name[next] <= '9') return true;
  }
  return false;
}

bool has_name_of_checkpoint(const FileSystem& files, const std::string& folder) {
  const auto info = files.info_followed(folder);
  return info.has_value() && info->type == FileType::kDirectory &&
         step_of_name(base_name(folder)).has_value();
}

bool has_content_of_checkpoint(const FileSystem& files, const std::string& folder) {
  return inspect_layout(files, folder).has_value() && !is_run_folder(files, folder);
}

/// "epoch_3", "my-step-20"; but not "global_step20", "2_Dense".
bool ends_in_number(std::string_view name) {
  const std::size_t before = name.find_last_not_of("0123456789");
  return before != std::string_view::npos && before > 0 && before + 1 < name.size() &&
         (name[before] == '-' || name[before] == '_');
}

/// What parts of a checkpoint (pytorch_model_fsdp_0, optimizer_0, a named adapter) do not have.
bool is_whole_checkpoint(const FileSystem& files, const std::string& folder) {
  constexpr std::array<std::string_view, 3> kOfWhole = {"config.json", "trainer_state.json",
                                                        kAccelerateFile};
  return std::ranges::any_of(
      kOfWhole, [&](std::string_view name) { return is_there(files, join_path(folder, name)); });
}

}  // namespace

Result<std::string> resolve_output(const FileSystem& files, const std::string& path) {
  std::string rest;
  std::string existing = path;
  while (existing.size() > 1 && existing.back() == '/') existing.pop_back();
  while (true) {
    const auto real = files.real_path(existing);
    if (real.has_value()) return rest.empty() ? *real : join_path(*real, rest);
    if (real.error().code != ErrorCode::kNotFound) return real.error();
    const std::string name = base_name(existing);
    if (name == "." || name == "..")
      return usage(path + ": leads through a folder that is not there");
    rest = rest.empty() ? name : join_path(name, rest);
    const std::string parent = parent_path(existing);
    if (parent == existing) return real.error();
    existing = parent;
  }
}

std::string checkpoint_in_run(const FileSystem& files, const std::string& folder) {
  const auto entries = files.list(folder);
  if (!entries.has_value()) return "";
  const auto found = std::ranges::find_if(*entries, [&](const DirectoryEntry& entry) {
    return has_step(entry.name) || (ends_in_number(entry.name) &&
                                    is_whole_checkpoint(files, join_path(folder, entry.name)));
  });
  return found == entries->end() ? "" : found->name;
}

bool is_run_folder(const FileSystem& files, const std::string& folder) {
  const auto home = files.info_followed(home_within(folder));
  return (home.has_value() && home->type == FileType::kDirectory) ||
         !checkpoint_in_run(files, folder).empty();
}

std::string outermost_checkpoint(const FileSystem& files, const std::string& folder) {
  std::string outermost = folder;
  if (is_run_folder(files, folder)) return folder;
  for (std::string around = parent_path(folder); around != parent_path(around);
       around = parent_path(around)) {
    if (is_run_folder(files, around)) break;  // whatever lies above it
    if (has_name_of_checkpoint(files, around) || has_content_of_checkpoint(files, around)) {
      outermost = around;
    }
  }
  return outermost;
}

Status check_output_place(const FileSystem& files, const std::string& path, OutputUse use) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string output, resolve_output(files, path));
  for (std::string folder = output; folder != "/"; folder = parent_path(folder)) {
    const bool written_into = folder != output || use == OutputUse::kFilled;
    if (has_name_of_checkpoint(files, folder) ||
        (written_into && has_content_of_checkpoint(files, folder))) {
      return usage(output + ": lies inside the checkpoint " + folder +
                   "; nothing is ever written there: choose a folder outside of it");
    }
    const std::string around = parent_path(folder);
    if (has_step_anywhere(base_name(folder)) && holds(files, around, std::span(&kTorchtitan, 1))) {
      return usage(
          output + ": \"" + base_name(folder) +
          "\" is a name that torchtitan, whose checkpoints lie beside it, takes for one of "
          "them; choose one without \"step-\"");
    }
    if (is_kept_by_accelerate(files, around, "")) {
      return usage(output +
                   ": lies beside the checkpoints of accelerate, which takes a number out "
                   "of every name in " +
                   around +
                   " and ends the training where it finds none; choose a folder outside "
                   "of it");
    }
    if (base_name(folder).starts_with("checkpoint") && holds_checkpoints(files, around)) {
      return usage(output + ": \"" + base_name(folder) +
                   "\" is a name that the trainer beside it takes for a checkpoint; choose one "
                   "that does not begin with \"checkpoint\"");
    }
    if (is_run_folder(files, folder)) break;  // whatever lies above it
  }
  return {};
}

bool is_kept_by_accelerate(const FileSystem& files, const std::string& folder,
                           std::string_view pattern) {
  const bool named = base_name(folder) == kAccelerateFolder ||
                     base_name(resolve_output(files, folder).value_or(folder)) == kAccelerateFolder;
  if (named && pattern.starts_with(kAcceleratePrefix)) return true;
  const auto entries = files.list(folder);
  if (!entries.has_value()) return false;
  return std::ranges::any_of(*entries, [&](const DirectoryEntry& entry) {
    return step_of_name(entry.name, kAccelerate).has_value() &&
           (named || is_there(files, join_path(join_path(folder, entry.name), kAccelerateFile)));
  });
}

}  // namespace evalcar::checkpoint
