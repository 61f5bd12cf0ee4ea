#include "agent/run/current_run.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>

#include "agent/publish/logged_lines.h"
#include "agent/run/rows.h"
#include "agent/run/run_identity.h"
#include "agent/run/warn_once.h"
#include "store/base/stale_temporaries.h"
#include "store/checkpoint/output_place.h"
#include "store/state/location.h"

namespace evalcar::run {
namespace {

constexpr std::chrono::seconds kHomeRetryPause{5};
/// Between two looks whether our folder is still ours; each publication looks besides.
constexpr std::chrono::seconds kLockPause{1};
/// A delete of the whole directory takes our folder before, among or after the checkpoints.
constexpr std::chrono::seconds kUnmarkedPause{2};

}  // namespace

CurrentRun::CurrentRun(const Surroundings& around, state::Store& store, stage::Stage& stage,
                       const Averages& averages, const BestKept& best, std::string path,
                       HomePlace home, std::string pattern, std::string publish_dir)
    : around_(around),
      store_(store),
      stage_(stage),
      averages_(averages),
      best_(best),
      path_(std::move(path)),
      home_(std::move(home)),
      pattern_(std::move(pattern)),
      publish_dir_(std::move(publish_dir)),
      home_lock_(around.files, around.clock),
      publish_lock_(around.files, around.clock) {}

// ---- which run

Result<CurrentRun::Change> CurrentRun::look(Slice& slice) {
  const auto root = around_.files.info_followed(path_);
  if (!root.has_value()) return Change::kSame;  // gone again: the watcher will tell
  const std::string mark = read_mark(around_.files, home());
  if (run_.has_value() && root->inode == root_inode_ && mark == run_->mark) {
    unmarked_since_.reset();
    entering_.reset();
    return Change::kSame;
  }
  if (silent()) return Change::kSame;
  const bool goes_on =
      entering_.has_value() && root->inode == entering_->inode && mark == entering_->mark;
  if (goes_on) return go_on_entering(slice);
  entering_.reset();
  if (wait_for_mark(mark)) return Change::kUnsure;
  const bool empty = mark.empty() && !holds_checkpoints(around_.files, path_, pattern_);
  if (silent()) return Change::kSame;
  if (empty) {
    // Empty: a new life, or a mount point that is not mounted. Its first checkpoint will tell.
    leave();
    return Change::kLeft;
  }
  EVALCAR_ASSIGN_OR_RETURN(const std::string real, around_.files.real_path(path_));
  const std::string stem = state::database_stem(real);
  std::optional<state::Run> run;
  if (mark.empty()) {
    EVALCAR_ASSIGN_OR_RETURN(run, run_with_this_content(stem));
    if (silent()) return Change::kSame;
  }
  const bool home_deleted = run.has_value();
  if (!run.has_value()) {
    // What lies in our folder is of this life of the directory, also if the database was lost.
    const bool ours = !mark.empty() && publish_dir_.empty();
    const std::int64_t hint = ours ? publish::published_generation(around_.files, home(), stem) : 1;
    EVALCAR_ASSIGN_OR_RETURN(run,
                             store_.ensure_run(stem, real, root->device, root->inode, mark, hint));
  }
  if (run_.has_value() && run->id == run_->id) {
    take(std::move(*run), root->inode, home_deleted);
    return Change::kBack;
  }
  const std::string dir = publish_dir_.empty() ? home() : publish_dir_;
  publish::Recall recall(around_.files, dir, store_, *run);
  entering_.emplace(Entering{std::move(*run), root->inode, mark, home_deleted, std::move(recall)});
  return go_on_entering(slice);
}

/// Before anything is planned: a database that was lost knows less than the files.
Result<CurrentRun::Change> CurrentRun::go_on_entering(Slice& slice) {
  auto done = entering_->recall.step([&slice] { return slice.over(); });
  if (done.has_value() && !*done) return Change::kRecalls;
  Entering entered = std::move(*entering_);
  entering_.reset();
  if (!done.has_value()) return std::move(done).error();
  tell_recalled(entered.recall.recalled());
  EVALCAR_ASSIGN_OR_RETURN(auto known, read_known_contents(entered.run.id));
  if (run_.has_value()) spdlog::info("{} was recreated: this is run {}", path_, entered.run.name);
  leave();
  known_contents_ = std::move(known);
  take(std::move(entered.run), entered.inode, entered.home_deleted);
  return Change::kEntered;
}

void CurrentRun::take(state::Run run, std::uint64_t inode, bool home_deleted) {
  if (home_deleted) {
    forget_home();
    begun_ = true;  // a checkpoint that is known is there
  }
  run_ = std::move(run);
  root_inode_ = inode;
  unmarked_since_.reset();
}

/// Its file system does not answer, or did not a moment ago: what was not found may be there.
bool CurrentRun::silent() const { return !around_.files.answers(path_).has_value(); }

bool CurrentRun::wait_for_mark(const std::string& mark) {
  if (!run_.has_value() || run_->mark.empty() || !mark.empty()) return false;
  const MonotonicTime now = around_.clock.monotonic_now();
  if (!unmarked_since_.has_value()) unmarked_since_ = now;
  return now - *unmarked_since_ < kUnmarkedPause;
}

/// Our folder was deleted alone, or the directory cannot be written: a checkpoint tells.
Result<std::optional<state::Run>> CurrentRun::run_with_this_content(const std::string& stem) {
  EVALCAR_ASSIGN_OR_RETURN(auto runs, store_.read().runs());
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
    if (run->name != stem + "-" + std::to_string(run->generation)) continue;
    EVALCAR_ASSIGN_OR_RETURN(const auto known, store_.read().known_kinds(run->id));
    if (!run->mark.empty() && holds_content(around_.files, path_, known)) {
      return std::optional(std::move(*run));
    }
  }
  return std::optional<state::Run>();
}

Result<watch::KnownContents> CurrentRun::read_known_contents(std::int64_t run_id) const {
  EVALCAR_ASSIGN_OR_RETURN(auto kinds, store_.read().known_kinds(run_id));
  watch::KnownContents known;
  for (state::KnownKind& row : kinds) {
    const auto kind = checkpoint::weights_kind_from_name(row.kind);
    if (kind.has_value()) known[row.step][*kind] = {row.fingerprint, std::move(row.files)};
  }
  return known;
}

void CurrentRun::tell_recalled(const publish::Recalled& found) {
  const std::string dir = publish_dir_.empty() ? home() : publish_dir_;
  constexpr std::size_t kTold = 5;
  for (std::size_t i = 0; i < found.left.size() && i < kTold; ++i) {
    spdlog::warn("{}: not taken into the database: {}", dir, found.left[i]);
  }
  if (found.left.size() > kTold) {
    spdlog::warn("{}: and {} lines more", dir, found.left.size() - kTold);
  }
  if (found.taken > 0) {
    spdlog::warn("{}: {} published evaluations that the database did not know were taken into it",
                 dir, found.taken);
  }
  recalled_ += found.taken;
}

bool CurrentRun::still_there() const {
  return run_.has_value() && around_.files.info_followed(path_).has_value() &&
         read_mark(around_.files, home()) == run_->mark;
}

void CurrentRun::drop_locks() {
  home_lock_.drop();
  publish_lock_.drop();
}

void CurrentRun::forget_home() {
  drop_locks();
  removed_lock_.clear();
  home_ready_ = begun_ = false;
}

/// Its rows stay as they are: it may come back with its file system.
void CurrentRun::leave() {
  forget_home();
  unmarked_since_.reset();
  entering_.reset();
  run_.reset();
}

// ---- our folder

Status CurrentRun::ensure_home() {
  begun_ = true;
  const MonotonicTime now = around_.clock.monotonic_now();
  EVALCAR_RETURN_IF_ERROR(keep_locks());
  if (home_ready_ || now < home_retry_at_) return {};
  const Status made = make_home();
  std::string trouble;
  if (!made.has_value()) {
    home_retry_at_ = now + kHomeRetryPause;
    trouble = made.error().message + "; going on without leases and without a lock there";
  }
  // An earlier turn may have taken one of them.
  if (made.has_value()) EVALCAR_RETURN_IF_ERROR(take_lock(home_lock_, home(), trouble));
  if (publishes_elsewhere()) EVALCAR_RETURN_IF_ERROR(take_publish_lock(trouble));
  warn_once(home_trouble_, trouble);
  removed_lock_.clear();
  if (!made.has_value()) return {};
  if (home_lock_.held()) {
    for (const std::string& folder : {home(), join_path(home(), "tensorboard"), publish_dir_}) {
      if (!folder.empty()) remove_stale_temporaries(around_.files, folder);
    }
    EVALCAR_RETURN_IF_ERROR(remove_unknown_leases());
  }
  EVALCAR_RETURN_IF_ERROR(mark_home());
  home_ready_ = true;
  return {};
}

/// publish.dir may be our folder by another name, for which one lock is enough.
bool CurrentRun::publishes_elsewhere() const {
  if (publish_dir_.empty()) return false;
  const auto there = checkpoint::resolve_output(around_.files, publish_dir_);
  const auto ours = checkpoint::resolve_output(around_.files, home());
  return !there.has_value() || !ours.has_value() || *there != *ours;
}

/// Where it cannot be made, whatever is published there says so itself.
Status CurrentRun::take_publish_lock(std::string& trouble) {
  if (!make_directories(around_.files, publish_dir_).has_value()) return {};
  return take_lock(publish_lock_, publish_dir_, trouble);
}

/// Where there can be no lock everything goes on without it.
Status CurrentRun::take_lock(FolderLock& lock, const std::string& folder, std::string& trouble) {
  if (lock.held()) return {};
  const FolderLock::Answer taken = lock.take(folder);
  EVALCAR_RETURN_IF_ERROR(taken.asked);
  if (!taken.lock.has_value()) {
    trouble = taken.lock.error().message;
    if (taken.lock.error().code != ErrorCode::kUnavailable) return {};
    fatal_reason_ = trouble;
    return taken.lock;
  }
  took_over_ = took_over_ || lock.replaced_living();
  return {};
}

Status CurrentRun::keep_locks() {
  const MonotonicTime now = around_.clock.monotonic_now();
  const bool due = (home_lock_.held() && now - home_lock_.checked_at() >= kLockPause) ||
                   (publish_lock_.held() && now - publish_lock_.checked_at() >= kLockPause);
  if (!due) return {};
  const Status mine = check_owner();
  return removed_lock_.empty() ? mine : Status();
}

Status CurrentRun::check_owner() {
  if (!removed_lock_.empty()) {
    return make_error(
        ErrorCode::kUnavailable,
        removed_lock_ + ": was removed; nothing is published before it is taken again");
  }
  EVALCAR_RETURN_IF_ERROR(check_lock(home_lock_, home()));
  return check_lock(publish_lock_, publish_dir_);
}

Status CurrentRun::check_lock(FolderLock& lock, const std::string& folder) {
  const FolderLock::Answer answer = lock.check();
  EVALCAR_RETURN_IF_ERROR(answer.asked);
  const Status& mine = answer.lock;
  if (mine.has_value()) return {};
  if (mine.error().code == ErrorCode::kUnavailable) fatal_reason_ = mine.error().message;
  if (mine.error().code != ErrorCode::kNotFound) return mine;
  // Maybe a delete of the whole directory, which must not find new names of ours.
  drop_locks();
  removed_lock_ = join_path(folder, "lock");
  home_ready_ = false;
  home_retry_at_ = around_.clock.monotonic_now() + kUnmarkedPause;
  return mine;
}

std::optional<MonotonicTime> CurrentRun::renewal_due() const {
  const auto home = home_lock_.renewal_due();
  const auto publish = publish_lock_.renewal_due();
  if (!home.has_value() || !publish.has_value()) return home.has_value() ? home : publish;
  return std::min(*home, *publish);
}

/// Never the output directory itself, which somebody may be removing.
Status CurrentRun::make_home() {
  if (!home_.beside() && checkpoint::is_kept_by_accelerate(around_.files, path_, pattern_)) {
    return make_error(ErrorCode::kUnavailable,
                      home() + ": is not made, accelerate would take it for a checkpoint");
  }
  EVALCAR_RETURN_IF_ERROR(check_home_place(around_.files, path_, home_));
  const auto there = around_.files.info_followed(home());
  if (!there.has_value() || there->type != FileType::kDirectory) {
    EVALCAR_RETURN_IF_ERROR(around_.files.make_directory(home()));
    EVALCAR_RETURN_IF_ERROR(around_.files.sync_directory(parent_path(home())));
  }
  return sign_home(around_.files, home_);
}

Status CurrentRun::remove_unknown_leases() {
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, rows_with_lease(store_.read()));
  std::set<std::string> leased;
  for (const state::Evaluation& row : rows) {
    // What another life of this directory has measured in part is not measured further here.
    if (is_open(row.state) || row.run_id == run_->id) leased.insert(row.lease_path);
  }
  EVALCAR_ASSIGN_OR_RETURN(const auto window, averages_.window_of(run_->id));
  leased.insert(window.begin(), window.end());
  EVALCAR_ASSIGN_OR_RETURN(const auto best, best_.names_of(run_->id));
  leased.insert(best.begin(), best.end());
  return stage_.leave_others(leased);
}

/// The mark goes on disk first: a row says only what a file can confirm.
Status CurrentRun::mark_home() {
  const std::string there = read_mark(around_.files, home());
  if (!there.empty() && there == run_->mark) return {};
  const std::string mark = run_->mark.empty() ? new_mark() : run_->mark;
  if (const Status written = write_mark(around_.files, home(), mark); !written.has_value()) {
    spdlog::warn("{}; a directory made anew is then told by its inode", written.error().message);
    run_->mark.clear();
    return {};
  }
  if (run_->mark.empty()) EVALCAR_RETURN_IF_ERROR(store_.set_mark(run_->id, mark));
  run_->mark = mark;
  return {};
}

}  // namespace evalcar::run
