#include "agent/run/snapshots.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <nlohmann/json.hpp>

#include "agent/run/rows.h"
#include "store/base/text.h"
#include "store/checkpoint/layout.h"
#include "store/state/location.h"

namespace evalcar::run {
namespace {

constexpr std::chrono::seconds kSnapshotPause{1};
constexpr std::size_t kMostEntries = 1000;
constexpr std::string_view kPattern = "weights-of-step-{step}";
/// A rename first: what a kill leaves of a folder that is being removed is nobody's weights.
constexpr std::string_view kGoing = ".gone-";
/// evalcar_trainer.py's, until the rename.
constexpr std::string_view kWriting = ".writing-";

/// Its word of the evaluations for which it wrote nothing: {"count", "step", "reason"}.
constexpr std::string_view kMissed = "not-written.json";
constexpr std::uint64_t kMostMissedBytes = 4096;
constexpr std::size_t kMostReasonBytes = 300;

/// Weights that anybody else could put there would be measured as this run's. Its name is easily
/// guessed, and /dev/shm is everybody's.
Status check_owner(const FileSystem& files, const std::string& folder) {
  return files.perform(folder, [folder]() -> Status {
    struct stat info = {};
    if (::lstat(folder.c_str(), &info) != 0) return {};  // gone, or not of this machine's files
    if (S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() &&
        (info.st_mode & (S_IWGRP | S_IWOTH)) == 0)
      return {};
    return make_error(
        ErrorCode::kInvalidArgument,
        folder + ": is not used for snapshots: expected a folder of user " +
            std::to_string(::geteuid()) +
            " that nobody else may write to; evalcar and the training must run as the "
            "same user");
  });
}

/// ".writing-<pid>-<step>" of a process that is not there any more.
bool is_orphan(std::string_view name) {
  name.remove_prefix(kWriting.size());
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
  if (error != std::errc{} || end == name.data() + name.size() || *end != '-' || pid <= 0)
    return false;
  return ::kill(pid, 0) != 0 && errno == ESRCH;
}

/// What lies there as the watcher would tell of a checkpoint; absent: it is not whole.
Result<watch::Sighting> sighting_of(const FileSystem& files, const config::Settings& settings,
                                    std::int64_t step, const std::string& path) {
  checkpoint::LayoutOptions options;
  options.base_model = settings.evaluate.base_model;
  EVALCAR_ASSIGN_OR_RETURN(const auto report, checkpoint::inspect_layout(files, path, options));
  watch::Sighting seen;
  seen.step = step;
  seen.folder = folder_name(settings.watch.pattern, step);
  seen.path = path;
  seen.layout = report.layout;
  seen.verdict = watch::Verdict::kComplete;
  for (const checkpoint::KindState& kind : report.kinds) {
    if (kind.kind != checkpoint::WeightsKind::kRegular) continue;
    if (kind.completeness != checkpoint::Completeness::kComplete) {
      return make_error(ErrorCode::kCorruption, kind.reason);
    }
    std::vector<state::FileIdentity> identities;
    for (const std::string& file : kind.files) {
      EVALCAR_ASSIGN_OR_RETURN(const FileInfo info, files.info(join_path(path, file)));
      if (info.type != FileType::kRegular) {
        return make_error(ErrorCode::kCorruption, file + " is no file");
      }
      seen.files.push_back({file, info});
      identities.push_back({file, info.inode, info.size_bytes, info.mtime_ns});
    }
    seen.fingerprint = state::content_fingerprint(identities);
    return seen;
  }
  return make_error(ErrorCode::kCorruption, "no weights");
}

}  // namespace

Snapshots::Snapshots(const Surroundings& around, const config::Settings& settings,
                     state::Store& store, const CurrentRun& run, Recorder& recorder, Leases& leases,
                     const DiskView& view)
    : around_(around),
      settings_(settings),
      store_(store),
      run_(run),
      recorder_(recorder),
      leases_(leases),
      view_(view) {}

void Snapshots::forget() {
  place_.clear();
  taken_.clear();
  missed_.clear();
  newest_ns_.reset();
}

std::optional<MonotonicTime> Snapshots::due() const {
  if (settings_.watch.snapshot_dir.empty() || !run_.known() || !run_.home_ready()) {
    return std::nullopt;
  }
  return due_;
}

Result<bool> Snapshots::step(bool training_over) {
  const MonotonicTime now = around_.clock.monotonic_now();
  if (!due().has_value() || now < due_) return false;
  due_ = now + kSnapshotPause;
  if (place_.empty()) {
    const std::string stem = state::database_stem(run_.run().output_dir);
    place_ = join_path(settings_.watch.snapshot_dir, stem);
  }
  const auto entries = around_.files.list(place_, kMostEntries);
  if (!entries.has_value()) {
    if (entries.error().code == ErrorCode::kNotFound) return false;
    return entries.error();
  }
  EVALCAR_RETURN_IF_ERROR(check_owner(around_.files, place_));
  bool news = false;
  for (const DirectoryEntry& entry : *entries) {
    const std::string path = join_path(place_, entry.name);
    if (entry.name == kMissed && entry.type == FileType::kRegular) read_missed(path);
    const bool left = entry.name.starts_with(kWriting) && (training_over || is_orphan(entry.name));
    if (left || entry.name.starts_with(kGoing)) {
      EVALCAR_RETURN_IF_ERROR(remove_tree(around_.files, path));
    }
    const auto step = checkpoint::step_of_name(entry.name, kPattern);
    if (!step.has_value() || entry.type != FileType::kDirectory) continue;
    EVALCAR_ASSIGN_OR_RETURN(const bool taken, look(*step, path));
    news |= taken;
  }
  if (training_over) (void)around_.files.remove_directory(place_);  // fails until it is empty
  return news;
}

/// A word that is none is passed over: it is about what was not done.
void Snapshots::read_missed(const std::string& path) {
  const auto text = read_file(around_.files, path, kMostMissedBytes);
  if (!text.has_value()) return;
  const auto word = nlohmann::json::parse(*text, nullptr, false);
  if (!word.is_object()) return;
  const auto number = [&word](const char* key) -> std::int64_t {
    const auto found = word.find(key);
    return found != word.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
  };
  const auto reason = word.find("reason");
  const std::int64_t count = number("count");
  if (count <= 0 || reason == word.end() || !reason->is_string()) return;
  const std::string why = printable(reason->get<std::string>()).substr(0, kMostReasonBytes);
  const std::string told = std::to_string(count) +
                           (count == 1 ? " evaluation has" : " evaluations have") +
                           " no weights (watch.snapshot_dir), at last that of step " +
                           std::to_string(number("step")) + ": " + why;
  if (told == missed_) return;
  missed_ = told;
  spdlog::warn("{}: {}", base_name(place_), missed_);
}

Result<bool> Snapshots::look(std::int64_t step, const std::string& path) {
  const auto info = around_.files.info(path);
  if (!info.has_value()) return false;  // taken back by its writer
  newest_ns_ = std::max(info->mtime_ns, newest_ns_.value_or(info->mtime_ns));
  bool news = false;
  const auto known = taken_.find(step);
  if (known == taken_.end() || known->second.inode != info->inode) {
    EVALCAR_ASSIGN_OR_RETURN(news, take(step, path, info->inode));
    if (!news) return false;
  }
  EVALCAR_RETURN_IF_ERROR(remove_if_over(step, path));
  return news;
}

/// How the folder of a snapshot's step, if there is one, stands to it: of an earlier training it
/// may be there beside the weights of this one.
Snapshots::Beside Snapshots::folder_beside(const watch::Sighting& seen) const {
  if (!view_.present.contains(seen.step)) return Beside::kNothing;
  if (view_.untold.contains(seen.step)) return Beside::kUnclear;
  for (const auto& [key, told] : view_.told) {
    if (key.first == seen.step && told.verdict == watch::Verdict::kWaiting) return Beside::kUnclear;
  }
  const auto whole = view_.complete.find({seen.step, seen.kind});
  if (whole == view_.complete.end()) return Beside::kOlder;  // nothing of it can be measured
  const bool is_older = watch::written_ns(whole->second.files) < watch::written_ns(seen.files);
  return is_older ? Beside::kOlder : Beside::kNewer;
}

Result<bool> Snapshots::take(std::int64_t step, const std::string& path, std::uint64_t inode) {
  const auto seen = sighting_of(around_.files, settings_, step, path);
  if (!seen.has_value()) {
    if (!around_.files.info(path).has_value()) return false;
    const ErrorCode code = seen.error().code;
    // What passes, as a lack of descriptors, is no word about the weights.
    if (code != ErrorCode::kCorruption && code != ErrorCode::kUnsupported) return seen.error();
    spdlog::warn("{}: removed, it cannot be evaluated: {}", path, printable(seen.error().message));
    EVALCAR_RETURN_IF_ERROR(remove(path));
    return false;
  }
  const Beside beside = folder_beside(*seen);
  if (beside == Beside::kUnclear) return false;  // the next look tells
  if (beside == Beside::kNewer) {
    spdlog::info("{}: not needed, {} is there and not older", path,
                 base_name(view_.present.at(step)));
    EVALCAR_RETURN_IF_ERROR(remove(path));
    return false;
  }
  if (beside == Beside::kOlder) {
    spdlog::info("{}: is measured as its step: {} is older, or not whole", path,
                 base_name(view_.present.at(step)));
  }
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t checkpoint, recorder_.record_snapshot(*seen));
  taken_[step] = {inode, checkpoint};
  return true;
}

/// Its rows hold it while something can still be measured of it. What failed for some of its tasks
/// stays so: the room is for the next one.
Status Snapshots::remove_if_over(std::int64_t step, const std::string& path) {
  const std::int64_t checkpoint = taken_.at(step).checkpoint_id;
  EVALCAR_ASSIGN_OR_RETURN(const auto rows,
                           store_.read().evaluations({.checkpoint_id = checkpoint}));
  const bool needed = std::any_of(rows.begin(), rows.end(), [](const state::Evaluation& row) {
    return !state::is_end_state(row.state);
  });
  if (needed) return {};
  for (const state::Evaluation& row : rows) {
    if (!is_partial(row) || row.lease_path.empty()) continue;
    EVALCAR_RETURN_IF_ERROR(leave_in_part(store_, row, "its snapshot was removed"));
    leases_.release(row);
  }
  EVALCAR_RETURN_IF_ERROR(remove(path));
  taken_.erase(step);
  return store_.mark_checkpoint_gone(checkpoint);
}

Status Snapshots::remove(const std::string& path) {
  const std::string going = join_path(place_, std::string(kGoing) + base_name(path));
  EVALCAR_RETURN_IF_ERROR(remove_tree(around_.files, going));
  const Status renamed = around_.files.rename(path, going);
  if (!renamed.has_value()) {  // its writer takes it back, too
    return renamed.error().code == ErrorCode::kNotFound ? Status{} : renamed;
  }
  return remove_tree(around_.files, going);
}

}  // namespace evalcar::run
