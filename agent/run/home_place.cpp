#include "agent/run/home_place.h"

#include <algorithm>

#include "agent/run/output_lock.h"
#include "agent/run/run_identity.h"
#include "store/checkpoint/layout.h"
#include "store/checkpoint/output_place.h"

namespace evalcar::run {
namespace {

constexpr const char* kHome = "_evalcar";
constexpr const char* kWatched = "watched";
constexpr const char* kAccelerate = "checkpoint_{step}";
constexpr std::string_view kAcceleratePrefix = "checkpoint_";
constexpr std::string_view kAccelerateFolder = "checkpoints";
/// save_state() of every release writes it, whatever is saved.
constexpr const char* kAccelerateFile = "random_states_0.pkl";
constexpr std::uint64_t kMostNameBytes = 4096;

/// The real path, also of one that is not there yet.
std::string real_path_of(const FileSystem& files, const std::string& path) {
  return checkpoint::resolve_output(files, path).value_or(path);
}

/// Which output directory a folder of ours says it is for; "" where it lies in that.
std::string signed_for(const FileSystem& files, const std::string& home) {
  auto name = read_file(files, join_path(home, kWatched), kMostNameBytes);
  if (!name.has_value()) return "";
  if (name->ends_with('\n')) name->pop_back();
  return *name;
}

bool is_there(const FileSystem& files, const std::string& path) {
  return files.info(path).has_value();
}

/// Entry by entry, what says whose it is last: until then a kill leaves two halves of one run.
Status move_entries(FileSystem& files, const std::string& from, const std::string& to) {
  EVALCAR_ASSIGN_OR_RETURN(auto entries, files.list(from));
  for (const DirectoryEntry& entry : entries) {
    if (is_there(files, join_path(to, entry.name)) && entry.name != "lock") {
      return make_error(
          ErrorCode::kInvalidArgument,
          from + ": cannot be moved to " + to + ", which holds a \"" + entry.name + "\" already");
    }
  }
  std::ranges::stable_partition(entries,
                                [](const DirectoryEntry& e) { return e.name != "run_id"; });
  for (const DirectoryEntry& entry : entries) {
    EVALCAR_RETURN_IF_ERROR(files.rename(join_path(from, entry.name), join_path(to, entry.name)));
  }
  EVALCAR_RETURN_IF_ERROR(files.sync_directory(to));
  return files.remove_directory(from);
}

}  // namespace

bool is_kept_by_accelerate(const FileSystem& files, const std::string& output_dir,
                           const std::string& pattern) {
  const bool named = base_name(output_dir) == kAccelerateFolder ||
                     base_name(real_path_of(files, output_dir)) == kAccelerateFolder;
  if (named && pattern.starts_with(kAcceleratePrefix)) return true;
  const auto entries = files.list(output_dir);
  if (!entries.has_value()) return false;
  return std::ranges::any_of(*entries, [&](const DirectoryEntry& entry) {
    return checkpoint::step_of_name(entry.name, kAccelerate).has_value() &&
           (named ||
            is_there(files, join_path(join_path(output_dir, entry.name), kAccelerateFile)));
  });
}

HomePlace home_place(const FileSystem& files, const std::string& output_dir,
                     const std::string& pattern) {
  const std::string real = real_path_of(files, output_dir);
  HomePlace beside{join_path(parent_path(real), kHome), base_name(real)};
  // It stays there when the checkpoints are gone, and when another pattern is given.
  if (signed_for(files, beside.path) == beside.watched ||
      is_kept_by_accelerate(files, output_dir, pattern)) {
    return beside;
  }
  return {join_path(output_dir, kHome), ""};
}

Status check_home_place(const FileSystem& files, const std::string& output_dir,
                        const HomePlace& place) {
  const std::string owner = signed_for(files, place.path);
  const auto taken = [&](const std::string& whose) {
    return make_error(ErrorCode::kInvalidArgument,
                      output_dir + ": evalcar's folder for it would be " + place.path +
                          ", which is that of " + whose +
                          "; keep the two trainings under folders of their own");
  };
  if (owner != place.watched) {
    const std::string around = parent_path(place.path);
    if (!owner.empty()) return taken(join_path(around, owner));
    if (!read_mark(files, place.path).empty()) return taken(around + " itself");
  }
  if (!place.beside()) return {};
  const auto checkpoints = files.info_followed(output_dir);
  const auto parent = files.info_followed(parent_path(place.path));
  if (!checkpoints.has_value() || !parent.has_value()) return {};
  if (checkpoints->device == parent->device) return {};
  return make_error(
      ErrorCode::kInvalidArgument,
      output_dir + ": is a file system of its own, and evalcar's folder must lie outside of it (" +
          place.path +
          "), since accelerate takes every entry for a checkpoint; hard links do not lead there: "
          "mount the folder above it instead, or save without automatic_checkpoint_naming");
}

Status sign_home(FileSystem& files, const HomePlace& place) {
  if (!place.beside() || signed_for(files, place.path) == place.watched) return {};
  return write_file_atomically(files, join_path(place.path, kWatched), place.watched + "\n");
}

Status move_home_beside(FileSystem& files, const std::string& output_dir, const HomePlace& place) {
  const std::string old = join_path(output_dir, kHome);
  if (!place.beside() || !is_there(files, old)) return {};
  const auto moved = [&]() -> Status {
    const auto info = files.info(old);
    if (info.has_value() && info->type != FileType::kDirectory) {
      return make_error(ErrorCode::kInvalidArgument, old + ": is no folder of evalcar's");
    }
    {
      // An agent with another database may be at work in it. Given up at once: it goes along.
      const auto lock = OutputLock::take(join_path(old, "lock"), false);
      if (!lock.has_value() && lock.error().code == ErrorCode::kUnavailable) return lock.error();
    }
    if (is_there(files, place.path)) return move_entries(files, old, place.path);
    return files.rename(old, place.path);
  }();
  if (moved.has_value()) {
    EVALCAR_RETURN_IF_ERROR(sign_home(files, place));
    EVALCAR_RETURN_IF_ERROR(files.sync_directory(parent_path(place.path)));
    return files.sync_directory(output_dir);
  }
  return make_error(moved.error().code,
                    old +
                        " lies among accelerate's checkpoints, whose save_state() and "
                        "load_state() fail on it: move it away by hand (" +
                        moved.error().message + ")");
}

}  // namespace evalcar::run
