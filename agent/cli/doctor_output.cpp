// An output directory as the agent will meet it.
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "agent/cli/doctor.h"
#include "agent/run/disk_space.h"
#include "agent/run/home_move.h"
#include "agent/watch/elsewhere.h"
#include "store/base/file_system_kind.h"
#include "store/checkpoint/layout.h"
#include "store/checkpoint/top_numbers.h"

namespace evalcar::cli {
namespace {

using Level = Finding::Level;

constexpr std::uint64_t kLittleBytes = std::uint64_t{4} << 30U;
constexpr std::uint64_t kFewInodes = 1000;

Finding check_space(const FileSystem& files, const config::Settings& settings,
                    const std::string& dir,
                    const std::map<std::int64_t, std::string>& checkpoints) {
  const std::string mend =
      "make room: below limits.min_free the oldest leases are given up, and their checkpoints are "
      "lost";
  const auto free = files.free_bytes(dir);
  if (!free.has_value()) return {"disk", Level::kProblem, free.error().message, ""};
  std::string text = dir + ": " + config::format_bytes(*free) + " free";
  struct statvfs facts{};
  const bool counted = ::statvfs(dir.c_str(), &facts) == 0 && facts.f_files > 0;
  if (counted) text += ", " + std::to_string(facts.f_favail) + " inodes";
  // The agent's own measure.
  run::DiskView view;
  view.present = checkpoints;
  const run::DiskSpace space(files, settings.limits, view, dir);
  const bool is_set = settings.limits.min_free.has_value();
  const std::uint64_t keep = space.min_free();
  text += "; " + config::format_bytes(keep) + " of it are the trainer's (limits.min_free)";
  const bool little =
      *free < std::max(keep, is_set ? 0 : kLittleBytes) || (counted && facts.f_favail < kFewInodes);
  return {"disk", little ? Level::kWarning : Level::kOk, text, little ? mend : ""};
}

Finding check_type(const FileSystem& files, const config::Settings& settings,
                   const std::string& dir) {
  const auto magic = files.file_system_type(dir);
  if (!magic.has_value()) return {"file system", Level::kProblem, magic.error().message, ""};
  const FileSystemKind kind = file_system_kind(*magic);
  if (kind.local) return {"file system", Level::kOk, dir + ": " + kind.name};
  return {"file system", Level::kOk,
          dir + ": " + kind.name + ", where changes may give no notice: it is looked at every " +
              std::to_string(settings.watch.poll_interval.count() / 1000) +
              " s (watch.poll_interval)" +
              (settings.limits.lease_budget.has_value()
                   ? ""
                   : "; a quota on it is not seen: where there is one, set limits.lease_budget to "
                     "what the trainer can spare")};
}

Finding check_permissions(const std::string& dir) {
  const std::string mend =
      "run as the trainer's user: in the unit, User= (`evalcar init --systemd` writes that "
      "drop-in) "
      "and ReadWritePaths=" +
      dir;
  if (::access(dir.c_str(), R_OK | W_OK | X_OK) != 0) {
    return {
        "permissions", Level::kProblem,
        dir + ": cannot be read and written by this user (uid " + std::to_string(::geteuid()) + ")",
        mend};
  }
  struct stat info{};
  const bool other =
      ::stat(dir.c_str(), &info) == 0 && info.st_uid != ::geteuid() && ::geteuid() != 0;
  if (other) {
    return {"permissions", Level::kWarning,
            dir + ": belongs to uid " + std::to_string(info.st_uid) + ", this is uid " +
                std::to_string(::geteuid()) + ": its files may be private, and not to be linked",
            mend};
  }
  return {"permissions", Level::kOk, dir + ": can be read and written"};
}

/// Steps and folders of the checkpoints that are there.
std::map<std::int64_t, std::string> checkpoints_in(const FileSystem& files, const std::string& dir,
                                                   const std::string& pattern) {
  std::map<std::int64_t, std::string> found;
  const auto entries = files.list(dir);
  if (!entries.has_value()) return found;
  for (const DirectoryEntry& entry : *entries) {
    const auto step = checkpoint::step_of_name(entry.name, pattern);
    if (step.has_value()) found[*step] = join_path(dir, entry.name);
  }
  return found;
}

/// Any regular file of a checkpoint, at most one folder deep; "" if there is none.
std::string file_of(const FileSystem& files, const std::string& folder, int depth = 1) {
  const auto entries = files.list(folder);
  if (!entries.has_value()) return "";
  std::string found;
  for (const DirectoryEntry& entry : *entries) {
    const std::string path = join_path(folder, entry.name);
    const auto info = files.info(path);
    if (!info.has_value()) continue;
    if (info->type == FileType::kRegular) found = path;
    if (info->type == FileType::kDirectory && depth > 0 && found.empty()) {
      found = file_of(files, path, depth - 1);
    }
    if (!found.empty()) return found;
  }
  return found;
}

/// The very link that a lease is made of: a checkpoint's file into our folder. Nothing is made
/// before there is a checkpoint, and nothing stays.
Finding try_hard_link(FileSystem& files, const std::string& dir, const std::string& home,
                      const std::map<std::int64_t, std::string>& checkpoints) {
  const std::string file = checkpoints.empty() ? "" : file_of(files, checkpoints.rbegin()->second);
  if (file.empty()) {
    return {"hard links", Level::kOk, dir + ": tried once there is a checkpoint"};
  }
  const bool was_there = files.info(home).has_value();
  if (!was_there) {
    if (const Status made = files.make_directory(home); !made.has_value()) {
      return {"hard links", Level::kProblem, made.error().message,
              "evalcar's folder must be made there, on the file system of the checkpoints"};
    }
  }
  const std::string link = join_path(home, "doctor." + std::to_string(::getpid()));
  const Status linked = files.hard_link(file, link);
  if (linked.has_value()) (void)files.remove_file(link);
  if (!was_there) (void)files.remove_directory(home);
  if (linked.has_value()) return {"hard links", Level::kOk, file + ": can be linked to"};
  return {"hard links", Level::kWarning,
          linked.error().message + "; checkpoints are copied instead, or read in place",
          "run as the user that owns the files (fs.protected_hardlinks), on the same file system"};
}

/// As the Hugging Face Trainer tells it, else by the steps that are there.
std::int64_t save_steps_of(const FileSystem& files,
                           const std::map<std::int64_t, std::string>& checkpoints) {
  if (checkpoints.empty()) return 0;
  const auto newest = checkpoints.rbegin();
  const auto numbers =
      checkpoint::top_level_numbers(files, join_path(newest->second, "trainer_state.json"),
                                    {"save_steps"}, checkpoint::kMaxTrainerStateBytes);
  if (numbers.has_value()) {
    const auto told = checkpoint::whole_number(*numbers, "save_steps");
    if (told.has_value() && *told > 0 && *told < (std::int64_t{1} << 40U)) return *told;
  }
  if (checkpoints.size() < 2) return 0;
  return newest->first - std::next(newest)->first;
}

/// None at all may mean that another folder was meant.
Finding count_of_checkpoints(const FileSystem& files, const config::Settings& settings,
                             const std::string& dir,
                             const std::map<std::int64_t, std::string>& checkpoints) {
  if (checkpoints.empty()) {
    auto elsewhere = watch::look_elsewhere(files, dir, settings.watch.pattern);
    if (!elsewhere.what.empty()) {
      return {"output directory", Level::kWarning, std::move(elsewhere.what),
              std::move(elsewhere.mend)};
    }
  }
  return {"output directory", Level::kOk,
          dir + ": " + std::to_string(checkpoints.size()) + " checkpoints"};
}

}  // namespace

Finding judge_steps(std::int64_t eval_steps, std::int64_t save_steps) {
  if (eval_steps == 0) return {"steps", Level::kOk, "every checkpoint is evaluated"};
  const std::string text = "evaluate.eval_steps is " + std::to_string(eval_steps);
  if (save_steps <= 0) return {"steps", Level::kOk, text + "; what the trainer saves is not known"};
  const std::string saves = ", the trainer saves every " + std::to_string(save_steps) + " steps";
  if (eval_steps % save_steps == 0) return {"steps", Level::kOk, text + saves};
  std::int64_t a = eval_steps;
  std::int64_t b = save_steps;
  while (b != 0) a = std::exchange(b, a % b);
  std::int64_t both = 0;
  const bool huge = __builtin_mul_overflow(eval_steps / a, save_steps, &both);
  return {"steps", Level::kWarning,
          text + saves + ": they meet " +
              (huge ? "hardly ever" : "only every " + std::to_string(both) + " steps"),
          "set evaluate.eval_steps to a multiple of " + std::to_string(save_steps) +
              ", or to 0 for every checkpoint"};
}

Findings check_output_directory(FileSystem& files, const config::Settings& settings,
                                const std::string& dir) {
  const auto info = files.info_followed(dir);
  if (!info.has_value()) {
    return {{"output directory", Level::kOk, dir + ": not there yet; it is waited for"}};
  }
  if (info->type != FileType::kDirectory) {
    return {{"output directory", Level::kProblem, dir + ": is no folder",
             "set watch.output_dir to the trainer's output directory"}};
  }
  const auto checkpoints = checkpoints_in(files, dir, settings.watch.pattern);
  const checkpoint::HomePlace home = checkpoint::home_place(files, dir, settings.watch.pattern);
  if (const Status place = run::check_home_place(files, dir, home); !place.has_value()) {
    return {{"output directory", Level::kProblem, place.error().message}};
  }
  return {count_of_checkpoints(files, settings, dir, checkpoints),
          check_space(files, settings, dir, checkpoints),
          check_type(files, settings, dir),
          check_permissions(dir),
          try_hard_link(files, dir, home.path, checkpoints),
          judge_steps(settings.evaluate.eval_steps, save_steps_of(files, checkpoints))};
}

}  // namespace evalcar::cli
