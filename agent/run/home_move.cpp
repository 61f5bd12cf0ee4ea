#include "agent/run/home_move.h"

#include <algorithm>

#include "agent/run/output_lock.h"

namespace evalcar::run {
namespace {

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
  std::stable_partition(entries.begin(), entries.end(),
                        [](const DirectoryEntry& e) { return e.name != checkpoint::kRunMarkFile; });
  for (const DirectoryEntry& entry : entries) {
    EVALCAR_RETURN_IF_ERROR(files.rename(join_path(from, entry.name), join_path(to, entry.name)));
  }
  EVALCAR_RETURN_IF_ERROR(files.sync_directory(to));
  return files.remove_directory(from);
}

}  // namespace

Status check_home_place(const FileSystem& files, const std::string& output_dir,
                        const HomePlace& place) {
  EVALCAR_RETURN_IF_ERROR(checkpoint::check_home_owner(files, output_dir, place));
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
  if (!place.beside() || checkpoint::home_signed_for(files, place.path) == place.watched) return {};
  return write_file_atomically(files, join_path(place.path, checkpoint::kWatchedFile),
                               place.watched + "\n");
}

Status move_home_beside(FileSystem& files, const std::string& output_dir, const HomePlace& place) {
  const std::string old = checkpoint::home_within(output_dir);
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
