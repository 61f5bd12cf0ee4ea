#include "agent/run/output_directory.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>

#include "agent/run/evaluation_settings.h"
#include "agent/run/run_identity.h"
#include "store/state/location.h"

namespace evalcar::run {
namespace {

using checkpoint::WeightsKind;
using state::EvaluationState;
using std::chrono::seconds;
using watch::Verdict;

constexpr seconds kRetryPause{5};
constexpr std::chrono::milliseconds kLeastPause{100};
constexpr seconds kGuardPause{5};
constexpr seconds kStatusPause{5};
/// A delete of the whole directory takes our folder before, among or after the checkpoints.
constexpr seconds kUnmarkedPause{2};
constexpr std::string_view kNotWanted = "not wanted: ";
constexpr std::string_view kNotStarted = "EMA has not started";

std::string kind_of(const watch::Sighting& seen) {
  return std::string(checkpoint::weights_kind_name(seen.kind));
}

std::string title(const state::Evaluation& row) { return row.checkpoint + " " + row.kind; }

/// An end that the configuration or the trainer caused, not a failure or a person: what causes it
/// may be over.
bool revivable(const state::Evaluation& row) {
  if (row.state == EvaluationState::kSkipped) {
    return row.reason.starts_with(kNotWanted) || row.reason.find(kNotStarted) != std::string::npos;
  }
  const bool was_never_read =
      row.state == EvaluationState::kQuarantined || row.state == EvaluationState::kLost;
  return was_never_read && row.attempts == 0;
}

bool is_open(EvaluationState state) {
  return !state::is_end_state(state) && state != EvaluationState::kScored;
}

/// Of these a lease may be held.
const std::vector<EvaluationState> kMayHoldLease = {
    EvaluationState::kComplete, EvaluationState::kLeased, EvaluationState::kLoading,
    EvaluationState::kEvaluating, EvaluationState::kFailed};

/// The order of tasks is for people; what is measured is their set.
std::vector<std::string> task_set(std::vector<std::string> tasks) {
  std::sort(tasks.begin(), tasks.end());
  tasks.erase(std::unique(tasks.begin(), tasks.end()), tasks.end());
  return tasks;
}

}  // namespace

OutputDirectory::OutputDirectory(const Surroundings& around, const config::Settings& settings,
                                 std::string path)
    : around_(around),
      settings_(settings),
      wanted_(evaluation_settings(settings.evaluate)),
      path_(std::move(path)),
      notifier_(around.make_notifier()),
      last_news_(around.clock.monotonic_now()) {
  watch::WatchOptions options;
  options.output_dir = path_;
  options.pattern = settings.watch.pattern;
  options.end_marker = settings.watch.end_marker;
  options.poll_interval = settings.watch.poll_interval;
  options.settle_time = settings.watch.settle_time;
  watcher_ = std::make_unique<watch::Watcher>(around.files, around.clock, *notifier_, options);
  stage_ =
      std::make_unique<stage::Stage>(around.files, join_path(home(), "leases"), around.stopping);
}

Result<std::unique_ptr<OutputDirectory>> OutputDirectory::open(const Surroundings& around,
                                                               const config::Settings& settings,
                                                               const std::string& path) {
  std::unique_ptr<OutputDirectory> directory(new OutputDirectory(around, settings, path));
  directory->database_ = settings.store.path;
  if (directory->database_.empty()) {
    EVALCAR_ASSIGN_OR_RETURN(directory->database_,
                             state::default_database_path(around.files, path));
  }
  EVALCAR_ASSIGN_OR_RETURN(directory->store_,
                           state::Store::open(around.files, around.clock, directory->database_));
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t recovered, directory->store_->recover());
  spdlog::info("watching {} (database {})", path, directory->database_);
  if (recovered > 0) spdlog::info("{} interrupted evaluations go on", recovered);

  publish::PublisherOptions options;
  options.dir = directory->publish_dir();
  options.tensorboard = settings.publish.tensorboard;
  options.metric_for_best_model = settings.publish.metric_for_best_model;
  options.greater_is_better = settings.publish.greater_is_better;
  options.aliases = around.aliases;
  options.publish_aliases = settings.publish.aliases;
  options.log_samples = settings.evaluate.log_samples;
  options.version = around.version;
  options.device = settings.evaluate.device;
  directory->publisher_ =
      std::make_unique<publish::Publisher>(around.files, around.clock, *directory->store_, options);
  return directory;
}

std::string OutputDirectory::publish_dir() const {
  return settings_.publish.dir.empty() ? home() : settings_.publish.dir;
}

std::optional<std::int64_t> OutputDirectory::newest_step() const {
  if (present_.empty()) return std::nullopt;
  return present_.rbegin()->first;
}

// ---- one turn

Status OutputDirectory::step() {
  const MonotonicTime now = around_.clock.monotonic_now();
  // Before the first look: it needs what an earlier process knew.
  if (!run_.has_value() && now >= retry_at_) (void)ensure_run();
  for (watch::Sighting& seen : watcher_->step()) {
    last_news_ = now;
    note_presence(seen);
    untold_[{seen.step, seen.kind}] = std::move(seen);
  }
  if (now < retry_at_) return {};
  const Status turn = [&]() -> Status {
    if (watcher_->trouble().empty()) EVALCAR_RETURN_IF_ERROR(ensure_run());
    if (unmarked_since_.has_value()) return {};
    while (!untold_.empty() && run_.has_value()) {
      EVALCAR_RETURN_IF_ERROR(ensure_home());
      const auto newest = std::prev(untold_.end());
      EVALCAR_RETURN_IF_ERROR(handle(newest->second));
      untold_.erase(newest);
      last_news_ = around_.clock.monotonic_now();
    }
    if (run_.has_value() && !vanished_ended_ && watcher_->trouble().empty()) {
      EVALCAR_RETURN_IF_ERROR(end_vanished());
      vanished_ended_ = true;
    }
    return guard_disk();
  }();
  if (!turn.has_value()) {
    retry_at_ = now + kRetryPause;
    return turn;
  }
  // Last: what cannot be handed out must not keep anything from being recorded and leased.
  if (unmarked_since_.has_value()) return {};
  if (publish_again_ && run_.has_value() && now >= publish_at_) return publish_left_over();
  return {};
}

std::chrono::milliseconds OutputDirectory::until_due() const {
  auto due = watcher_->until_due();
  const MonotonicTime now = around_.clock.monotonic_now();
  const auto until = [now](MonotonicTime time) {
    return std::chrono::ceil<std::chrono::milliseconds>(time - now);
  };
  if (!untold_.empty()) due = std::min(due, until(retry_at_));
  if (publish_again_ && run_.has_value()) {
    due = std::min(due, until(std::max(retry_at_, publish_at_)));
  }
  return std::max(std::chrono::milliseconds(0), due);
}

Status OutputDirectory::ensure_run() {
  const auto root = around_.files.info_followed(path_);
  if (!root.has_value()) return {};  // gone again: the watcher will tell
  const std::string mark = read_mark(around_.files, home());
  if (run_.has_value() && root->inode == root_inode_ && mark == run_->mark) {
    unmarked_since_.reset();
    return {};
  }
  if (wait_for_mark(mark)) return {};
  if (mark.empty() && !holds_checkpoints(around_.files, path_, settings_.watch.pattern)) {
    // Empty: a new life, or a mount point that is not mounted. Its first checkpoint will tell.
    leave_run();
    untold_.clear();
    publish_again_ = false;
    return {};
  }
  EVALCAR_ASSIGN_OR_RETURN(const std::string real, around_.files.real_path(path_));
  const std::string stem = state::database_stem(real);
  std::optional<state::Run> run;
  if (mark.empty()) {
    EVALCAR_ASSIGN_OR_RETURN(run, run_with_this_content(stem));
  }
  const bool home_deleted = run.has_value();
  if (!run.has_value()) {
    EVALCAR_ASSIGN_OR_RETURN(run, store_->ensure_run(stem, real, root->device, root->inode, mark));
  }
  if (!run_.has_value() || run->id != run_->id) {
    if (run_.has_value()) spdlog::info("{} was recreated: this is run {}", path_, run->name);
    leave_run();
    EVALCAR_RETURN_IF_ERROR(begin_watching(run->id));
  }
  run_ = std::move(run);
  root_inode_ = root->inode;
  unmarked_since_.reset();
  publish_again_ = true;
  if (home_deleted) {  // the rows still know everything that was in it
    lock_.reset();
    home_ready_ = begun_ = false;
    return ensure_home();
  }
  return {};
}

bool OutputDirectory::wait_for_mark(const std::string& mark) {
  if (!run_.has_value() || run_->mark.empty() || !mark.empty()) return false;
  const MonotonicTime now = around_.clock.monotonic_now();
  if (!unmarked_since_.has_value()) unmarked_since_ = now;
  if (now - *unmarked_since_ >= kUnmarkedPause) return false;
  retry_at_ = publish_at_ = now + std::chrono::milliseconds(200);
  publish_again_ = true;
  return true;
}

/// Our folder was deleted alone, or the directory cannot be written: a checkpoint tells.
Result<std::optional<state::Run>> OutputDirectory::run_with_this_content(const std::string& stem) {
  EVALCAR_ASSIGN_OR_RETURN(auto runs, store_->read().runs());
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
    if (run->name != stem + "-" + std::to_string(run->generation)) continue;
    EVALCAR_ASSIGN_OR_RETURN(const auto known, store_->read().known_kinds(run->id));
    if (!run->mark.empty() && holds_content(around_.files, path_, known)) {
      return std::optional(std::move(*run));
    }
  }
  return std::optional<state::Run>();
}

/// Its rows stay as they are: it may come back with its file system.
void OutputDirectory::leave_run() {
  if (!run_.has_value()) return;
  if (active_.has_value()) {
    const auto row = store_->read().evaluation(*active_);
    if (row.has_value() &&
        (row->state == EvaluationState::kLoading || row->state == EvaluationState::kEvaluating)) {
      if (const Status back = store_->transition(row->id, EvaluationState::kLeased,
                                                 "interrupted: its output directory went");
          !back.has_value()) {
        spdlog::warn("{}", back.error().message);
      }
    }
    superseded_.insert(*active_);
  }
  complete_.clear();
  torn_.clear();
  checkpoint_of_step_.clear();
  present_.clear();
  leases_.clear();
  lock_.reset();
  home_ready_ = begun_ = false;
  vanished_ended_ = false;
  unmarked_since_.reset();
  run_.reset();
}

/// Tells the watcher what earlier processes saw in this run; what it said without that is void.
Status OutputDirectory::begin_watching(std::int64_t run_id) {
  EVALCAR_ASSIGN_OR_RETURN(auto kinds, store_->read().known_kinds(run_id));
  watch::KnownContents known;
  for (state::KnownKind& row : kinds) {
    const auto kind = checkpoint::weights_kind_from_name(row.kind);
    if (kind.has_value()) known[row.step][*kind] = {row.fingerprint, std::move(row.files)};
  }
  untold_.clear();
  watcher_->begin(std::move(known));
  return {};
}

/// What was scored and is not published: by a killed process, or because a file could not be
/// written. Without a folder of ours and without such a row there is nothing.
Status OutputDirectory::publish_left_over() {
  EVALCAR_ASSIGN_OR_RETURN(const auto scored, scored_rows());
  const auto home_info = around_.files.info_followed(home());
  const bool has_home = home_info.has_value() && home_info->type == FileType::kDirectory;
  if (scored.empty() && !has_home) {
    publish_again_ = false;
    return {};
  }
  EVALCAR_RETURN_IF_ERROR(ensure_home());
  const auto done = publisher_->publish_pending(run_->id, std::nullopt);
  if (!done.has_value()) {
    ++publish_failures_;
    return not_published(done.error());
  }
  publish_again_ = false;
  publish_failures_ = 0;
  return {};
}

Result<std::vector<state::Evaluation>> OutputDirectory::scored_rows() const {
  state::EvaluationFilter filter;
  filter.run_id = run_->id;
  filter.states = {EvaluationState::kScored};
  return store_->read().evaluations(filter);
}

/// The numbers are safe in the database; the rows say why they are not handed out yet.
Status OutputDirectory::not_published(const Error& error) {
  publish_again_ = true;
  publish_at_ =
      around_.clock.monotonic_now() +
      std::clamp<MonotonicTime::duration>(settings_.limits.retry_delay, kLeastPause, kRetryPause);
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, scored_rows());
  for (const state::Evaluation& row : rows) {
    EVALCAR_RETURN_IF_ERROR(store_->set_reason(row.id, "not published yet: " + error.message));
  }
  return error;
}

/// No more tries are worth waiting for; the agent goes on trying as long as it runs.
bool OutputDirectory::publishing_fails() const {
  return publish_again_ && publish_failures_ >= settings_.limits.attempts;
}

void OutputDirectory::warn_once(std::string& known, const std::string& text) {
  if (text != known && !text.empty()) spdlog::warn("{}", text);
  known = text;
}

/// Our folder in the output directory, made once there is a checkpoint folder; and the lock in it.
/// Where it cannot be made everything goes on, with checkpoints read in place and without a lock.
Status OutputDirectory::ensure_home() {
  begun_ = true;
  const MonotonicTime now = around_.clock.monotonic_now();
  if (home_ready_ || now < home_retry_at_) return {};
  if (const Status made = make_directories(around_.files, home()); !made.has_value()) {
    home_retry_at_ = now + kRetryPause;
    warn_once(home_trouble_,
              made.error().message + "; going on without leases and without a lock there");
    return {};
  }
  if (!lock_.has_value()) {  // an earlier turn may have come as far as here
    auto lock = OutputLock::take(join_path(home(), "lock"));
    if (!lock.has_value() && lock.error().code == ErrorCode::kUnavailable) {
      fatal_ = true;
      return lock.error();
    }
    warn_once(home_trouble_, lock.has_value() ? "" : lock.error().message);
    if (lock.has_value()) lock_ = std::move(lock).value();
  }
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, store_->read().evaluations({}));
  std::set<std::string> leased;
  for (const state::Evaluation& row : rows) {
    if (is_open(row.state) && !row.lease_path.empty()) leased.insert(row.lease_path);
  }
  if (lock_.has_value()) EVALCAR_RETURN_IF_ERROR(stage_->remove_others(leased));
  EVALCAR_RETURN_IF_ERROR(mark_home());
  home_ready_ = true;
  return {};
}

/// The mark goes on disk first: a row says only what a file can confirm.
Status OutputDirectory::mark_home() {
  const std::string there = read_mark(around_.files, home());
  if (!there.empty() && there == run_->mark) return {};
  const std::string mark = run_->mark.empty() ? new_mark() : run_->mark;
  if (const Status written = write_mark(around_.files, home(), mark); !written.has_value()) {
    spdlog::warn("{}; a directory made anew is then told by its inode", written.error().message);
    run_->mark.clear();
    return {};
  }
  if (run_->mark.empty()) EVALCAR_RETURN_IF_ERROR(store_->set_mark(run_->id, mark));
  run_->mark = mark;
  return {};
}

// ---- sightings

/// Known before anything of a turn is judged: which checkpoints there are says which one is the
/// newest, and which is the n-th.
void OutputDirectory::note_presence(const watch::Sighting& seen) {
  if (seen.verdict == Verdict::kGone) {
    present_.erase(seen.step);
  } else if (seen.verdict != Verdict::kNotStarted) {
    present_[seen.step] = seen.path;
  }
}

Status OutputDirectory::handle(const watch::Sighting& seen) {
  torn_.erase({seen.step, seen.kind});
  switch (seen.verdict) {
    case Verdict::kWaiting:
      return handle_waiting(seen);
    case Verdict::kTorn:
      torn_[{seen.step, seen.kind}] = seen;
      return handle_waiting(seen);
    case Verdict::kComplete:
      return handle_complete(seen);
    case Verdict::kNotStarted:
      return handle_not_started(seen);
    case Verdict::kUnreadable:
      return handle_unreadable(seen);
    case Verdict::kGone:
      return handle_gone(seen);
  }
  return {};
}

Result<state::Evaluation> OutputDirectory::record(const watch::Sighting& seen) {
  state::CheckpointObservation observation;
  observation.name = seen.folder;
  observation.path = seen.path;
  observation.step = seen.step;
  if (seen.verdict != Verdict::kUnreadable) {
    observation.layout = std::string(checkpoint::layout_name(seen.layout));
  }
  if (const auto info = around_.files.info_followed(seen.path); info.has_value()) {
    observation.device = info->device;
    observation.inode = info->inode;
  }
  state::KindObservation kind;
  kind.kind = kind_of(seen);
  kind.complete = seen.verdict == Verdict::kComplete;
  kind.reason = seen.reason;
  for (const watch::WatchedFile& file : seen.files) {
    const FileInfo& id = file.identity;
    kind.files.push_back({file.relative, id.inode, id.size_bytes, id.mtime_ns});
    kind.size_bytes += id.size_bytes;
    kind.mtime_ns = std::max(kind.mtime_ns, id.mtime_ns);
  }
  kind.fingerprint = seen.fingerprint;
  observation.kinds.push_back(std::move(kind));

  EVALCAR_ASSIGN_OR_RETURN(const state::Observed observed,
                           store_->observe_checkpoint(run_->id, observation));
  if (observed.replaces.has_value()) {
    EVALCAR_RETURN_IF_ERROR(supersede_generation(
        *observed.replaces, seen.folder + " was written again (generation " +
                                std::to_string(observed.checkpoint.generation) + ")"));
  }
  checkpoint_of_step_[seen.step] = observed.checkpoint.id;
  state::NewEvaluation wanted;
  wanted.checkpoint_id = observed.checkpoint.id;
  wanted.kind = kind_of(seen);
  wanted.dtype = settings_.evaluate.dtype;
  wanted.settings = wanted_;
  return store_->plan_evaluation(wanted);
}

/// What went while no agent was there to see it: nothing will ever tell of it again.
Status OutputDirectory::end_vanished() {
  state::EvaluationFilter filter;
  filter.run_id = run_->id;
  filter.states = {EvaluationState::kFound};
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, store_->read().evaluations(filter));
  for (const state::Evaluation& row : rows) {
    const auto folder = around_.files.info_followed(join_path(path_, row.checkpoint));
    if (folder.has_value() || folder.error().code != ErrorCode::kNotFound) continue;
    EVALCAR_RETURN_IF_ERROR(store_->mark_checkpoint_gone(row.checkpoint_id));
    EVALCAR_ASSIGN_OR_RETURN(const bool unwanted, end_if_unwanted(row));
    if (unwanted) continue;
    EVALCAR_RETURN_IF_ERROR(
        end(row.id, EvaluationState::kLost,
            "removed before it was complete, while no agent ran: " + row.reason));
  }
  return {};
}

Status OutputDirectory::supersede_generation(std::int64_t checkpoint_id,
                                             const std::string& reason) {
  state::EvaluationFilter filter;
  filter.checkpoint_id = checkpoint_id;
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, store_->read().evaluations(filter));
  for (const state::Evaluation& row : rows) {
    if (!is_open(row.state)) continue;
    superseded_.insert(row.id);
    EVALCAR_RETURN_IF_ERROR(end(row.id, EvaluationState::kSuperseded, reason));
    release(row);
  }
  return {};
}

Result<std::string> OutputDirectory::why_not_wanted(std::int64_t step,
                                                    const std::string& kind) const {
  const auto& kinds = settings_.evaluate.weights;
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) {
    return "evaluate.weights leaves " + kind + " out";
  }
  const config::EvaluateSettings& e = settings_.evaluate;
  std::set<std::int64_t> earlier;
  if (e.every_nth > 1) {
    // Both: what was deleted since, and what is there but not yet recorded.
    EVALCAR_ASSIGN_OR_RETURN(const auto checkpoints, store_->read().checkpoints(run_->id));
    for (const state::Checkpoint& c : checkpoints) {
      if (c.step < step) earlier.insert(c.step);
    }
    for (const auto& [there, path] : present_) {
      if (there < step) earlier.insert(there);
    }
  }
  return schedule::why_not_wanted({e.enabled, e.eval_steps, e.every_nth}, step,
                                  static_cast<std::int64_t>(earlier.size()));
}

/// True: the configuration leaves it out, and the row says so. What runs now is let finish.
Result<bool> OutputDirectory::end_if_unwanted(const state::Evaluation& row) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string reason, why_not_wanted(row.step, row.kind));
  if (reason.empty()) return false;
  if (is_open(row.state) && row.id != active_) {
    EVALCAR_RETURN_IF_ERROR(
        end(row.id, EvaluationState::kSkipped, std::string(kNotWanted) + reason));
    release(row);
  }
  return true;
}

Status OutputDirectory::handle_waiting(const watch::Sighting& seen) {
  EVALCAR_ASSIGN_OR_RETURN(const state::Evaluation row, record(seen));
  // Of a row that is further on this is a delete or a rewrite in progress: it says nothing yet.
  if (row.state != EvaluationState::kFound) return {};
  EVALCAR_ASSIGN_OR_RETURN(const bool unwanted, end_if_unwanted(row));
  if (unwanted) return {};
  spdlog::debug("{}: waiting: {}", title(row), seen.reason);
  return store_->set_reason(row.id, seen.reason);
}

Status OutputDirectory::handle_complete(const watch::Sighting& seen) {
  EVALCAR_ASSIGN_OR_RETURN(const state::Evaluation row, record(seen));
  complete_[{seen.step, seen.kind}] = seen;
  if (seen.kind == WeightsKind::kRegular) link_in_checkpoint(seen);

  EVALCAR_ASSIGN_OR_RETURN(const bool unwanted, end_if_unwanted(row));
  if (unwanted) return {};
  if (row.state == EvaluationState::kFound || revivable(row)) {
    EVALCAR_RETURN_IF_ERROR(store_->transition(row.id, EvaluationState::kComplete));
    spdlog::info("{}: complete ({})", title(row), checkpoint::layout_name(seen.layout));
  } else if (row.state != EvaluationState::kComplete) {
    return {};
  }
  return take_lease(row, seen);
}

Status OutputDirectory::take_lease(const state::Evaluation& row, const watch::Sighting& seen) {
  const std::string name =
      std::to_string(row.step) + "-" + std::to_string(row.generation) + "-" + row.kind;
  auto lease = stage_->acquire(name, seen.path, seen.files, copy_budget());
  if (lease.has_value()) {
    spdlog::debug("{}: {}", title(row), stage::method_name(lease->method));
    EVALCAR_RETURN_IF_ERROR(store_->mark_leased(row.id, lease->dir));
    leases_[row.id] = std::move(lease).value();
    return {};
  }
  if (lease.error().code == ErrorCode::kNotFound) {
    return end(row.id, EvaluationState::kLost,
               "removed before it could be leased: " + lease.error().message);
  }
  if (lease.error().code == ErrorCode::kUnavailable) {  // the next look tells what it has become
    watcher_->rescan();
    return store_->set_reason(row.id, lease.error().message);
  }
  return lease.error();
}

Status OutputDirectory::handle_not_started(const watch::Sighting& seen) {
  // Only where it was expected before (maybe by an earlier process): an empty EMA folder. Else
  // this kind just is not there.
  state::EvaluationFilter filter;
  filter.run_id = run_->id;
  filter.step = seen.step;
  filter.kind = kind_of(seen);
  filter.states = {EvaluationState::kFound};
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, store_->read().evaluations(filter));
  for (const state::Evaluation& row : rows) {
    EVALCAR_RETURN_IF_ERROR(end(row.id, EvaluationState::kSkipped, seen.reason));
  }
  return {};
}

Status OutputDirectory::handle_unreadable(const watch::Sighting& seen) {
  EVALCAR_ASSIGN_OR_RETURN(const state::Evaluation row, record(seen));
  if (row.state != EvaluationState::kFound) return {};
  EVALCAR_ASSIGN_OR_RETURN(const bool unwanted, end_if_unwanted(row));
  if (unwanted) return {};
  spdlog::warn("{}: cannot be read: {}", title(row), seen.reason);
  return store_->fail_attempt(row.id, {"recognising", "unsupported", seen.reason}, "", true);
}

Status OutputDirectory::handle_gone(const watch::Sighting& seen) {
  complete_.erase({seen.step, seen.kind});
  const auto known = checkpoint_of_step_.find(seen.step);
  if (known == checkpoint_of_step_.end()) return {};
  EVALCAR_RETURN_IF_ERROR(store_->mark_checkpoint_gone(known->second));
  state::EvaluationFilter filter;
  filter.checkpoint_id = known->second;
  filter.states = {EvaluationState::kFound, EvaluationState::kComplete};
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, store_->read().evaluations(filter));
  for (const state::Evaluation& row : rows) {
    EVALCAR_ASSIGN_OR_RETURN(const bool unwanted, end_if_unwanted(row));
    if (unwanted) continue;
    const bool whole = row.state == EvaluationState::kComplete;
    EVALCAR_RETURN_IF_ERROR(end(row.id, EvaluationState::kLost,
                                whole ? "removed before it could be leased"
                                      : "removed before it was complete: " + row.reason));
  }
  return {};
}

/// For lmms-engine's own evaluation client, which looks for results in checkpoint-N/eval. Only in
/// the newest checkpoint, which no retention is about to take; the folder's time is put back.
void OutputDirectory::link_in_checkpoint(const watch::Sighting& seen) {
  const config::LinkInCheckpoint mode = settings_.publish.link_in_checkpoint;
  const bool lmms_engine = seen.layout == checkpoint::Layout::kLmmsEngineFsdp2;
  if (mode == config::LinkInCheckpoint::kNever) return;
  if (mode == config::LinkInCheckpoint::kAuto && !lmms_engine) return;
  if (seen.step != newest_step() || !home_ready_) return;
  FileSystem& files = around_.files;
  const auto folder = files.info(seen.path);
  const std::string link = join_path(seen.path, "eval");
  if (!folder.has_value() || folder->type != FileType::kDirectory || files.info(link)) return;
  const std::string results = "results/" + std::to_string(seen.step) + "/";
  const std::string target =
      settings_.publish.dir.empty() ? "../_evalcar/" + results : join_path(publish_dir(), results);
  if (const Status made = files.symbolic_link(target, link); !made.has_value()) {
    spdlog::warn("{}", made.error().message);
    return;
  }
  if (const Status put_back = files.set_mtime(seen.path, folder->mtime_ns); !put_back) {
    spdlog::warn("{}", put_back.error().message);
  }
}

// ---- evaluations

Result<std::vector<schedule::Candidate>> OutputDirectory::waiting() {
  std::vector<schedule::Candidate> candidates;
  if (!run_.has_value() || unmarked_since_.has_value()) return candidates;
  state::EvaluationFilter filter;
  filter.run_id = run_->id;
  filter.states = {EvaluationState::kFound, EvaluationState::kComplete, EvaluationState::kLeased,
                   EvaluationState::kFailed};
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, store_->read().evaluations(filter));
  const std::string now = format_utc(around_.clock.wall_now());
  const std::string identity = state::settings_sha256(wanted_, settings_.evaluate.dtype);
  const std::vector<std::string> tasks = task_set(wanted_.tasks);
  for (const state::Evaluation& row : rows) {
    if (row.settings_sha256 != identity || task_set(row.settings.tasks) != tasks) {
      EVALCAR_ASSIGN_OR_RETURN(const bool handed_over, hand_over_lease(row));
      if (handed_over) last_news_ = around_.clock.monotonic_now();  // the new row waits now
      EVALCAR_RETURN_IF_ERROR(end(row.id, EvaluationState::kSkipped,
                                  std::string(kNotWanted) + "the configuration changed"));
      release(row);
      continue;
    }
    if (row.state == EvaluationState::kFound) continue;
    const bool ready = row.state != EvaluationState::kFailed || row.next_try_at <= now;
    candidates.push_back({row.id, row.step, row.kind, ready});
  }
  waiting_count_ = candidates.size();
  return candidates;
}

/// The configuration changed: the evaluation that is wanted now takes the lease of the one that was
/// wanted before, for the checkpoint's own files may be gone. False: it needs none, or has its own.
Result<bool> OutputDirectory::hand_over_lease(const state::Evaluation& row) {
  if (row.lease_path.empty()) return false;
  EVALCAR_ASSIGN_OR_RETURN(const std::string reason, why_not_wanted(row.step, row.kind));
  if (!reason.empty()) return false;
  const std::string dir = stage_->own(row.lease_path);
  if (dir.empty() || !around_.files.info(dir).has_value()) return false;
  state::NewEvaluation wanted;
  wanted.checkpoint_id = row.checkpoint_id;
  wanted.kind = row.kind;
  wanted.dtype = settings_.evaluate.dtype;
  wanted.settings = wanted_;
  EVALCAR_ASSIGN_OR_RETURN(const state::Evaluation heir, store_->plan_evaluation(wanted));
  if (heir.state == EvaluationState::kFound || revivable(heir)) {
    EVALCAR_RETURN_IF_ERROR(store_->transition(heir.id, EvaluationState::kComplete));
  } else if (heir.state != EvaluationState::kComplete) {
    return false;
  }
  EVALCAR_RETURN_IF_ERROR(store_->mark_leased(heir.id, dir));
  return true;
}

Status OutputDirectory::supersede(const std::vector<std::int64_t>& evaluations) {
  for (const std::int64_t id : evaluations) {
    EVALCAR_ASSIGN_OR_RETURN(const state::Evaluation row, store_->read().evaluation(id));
    EVALCAR_RETURN_IF_ERROR(end(id, EvaluationState::kSuperseded,
                                "a newer checkpoint came (evaluate.policy = \"latest\")"));
    release(row);
  }
  return {};
}

Result<std::optional<stage::Lease>> OutputDirectory::lease_of(const state::Evaluation& row) {
  // After `evalcar retry` a row is complete again and still has its lease.
  const auto again = [this, &row](stage::Lease lease) -> Result<std::optional<stage::Lease>> {
    if (row.state == EvaluationState::kComplete) {
      EVALCAR_RETURN_IF_ERROR(store_->mark_leased(row.id, lease.dir));
    }
    return std::optional(std::move(lease));
  };
  const auto held = leases_.find(row.id);
  if (held != leases_.end() && stage_->check(held->second) <= stage::Integrity::kOnlyCtime) {
    return again(held->second);
  }
  const auto kind = checkpoint::weights_kind_from_name(row.kind);
  const auto seen = complete_.find({row.step, kind.value_or(WeightsKind::kRegular)});
  std::vector<std::string> in_place;
  if (seen != complete_.end()) {
    for (const watch::WatchedFile& file : seen->second.files) in_place.push_back(file.relative);
  }
  if (!row.lease_path.empty() && held == leases_.end()) {  // taken by a process before this one
    auto lease = stage_->reopen(row.lease_path, row.checkpoint_path, in_place);
    if (lease.has_value()) {
      leases_[row.id] = *lease;
      return again(std::move(lease).value());
    }
  }
  leases_.erase(row.id);
  if (seen == complete_.end()) {
    EVALCAR_RETURN_IF_ERROR(end(row.id, EvaluationState::kLost,
                                "its files are gone, from the checkpoint and from the lease"));
    return std::optional<stage::Lease>();
  }
  if (row.state == EvaluationState::kLeased) {
    EVALCAR_RETURN_IF_ERROR(store_->transition(row.id, EvaluationState::kFailed,
                                               "the lease was damaged; it is taken again"));
  }
  EVALCAR_RETURN_IF_ERROR(take_lease(row, seen->second));
  const auto taken = leases_.find(row.id);
  if (taken == leases_.end()) return std::optional<stage::Lease>();
  return std::optional(taken->second);
}

void OutputDirectory::release(const state::Evaluation& row) {
  const auto held = leases_.find(row.id);
  const std::string dir = held != leases_.end() ? held->second.dir : row.lease_path;
  leases_.erase(row.id);
  // A lease belongs to the checkpoint and the kind: another evaluation of them may hold it too.
  state::EvaluationFilter filter;
  filter.checkpoint_id = row.checkpoint_id;
  filter.kind = row.kind;
  filter.states = kMayHoldLease;
  const auto others = store_->read().evaluations(filter);
  if (!others.has_value()) return spdlog::warn("{}", others.error().message);
  for (const state::Evaluation& other : *others) {
    if (other.id != row.id && stage_->own(other.lease_path) == stage_->own(dir)) return;
  }
  if (const Status released = stage_->release(dir); !released.has_value()) {
    spdlog::warn("{}", released.error().message);  // removed at the next start
  }
}

Status OutputDirectory::fail(const state::Evaluation& row, const state::AttemptFailure& failure,
                             bool retryable) {
  const auto held = leases_.find(row.id);
  if (held != leases_.end() && held->second.method == stage::Method::kInPlace &&
      stage_->check(held->second) == stage::Integrity::kVanished) {
    leases_.erase(held);
    return end(row.id, EvaluationState::kLost, "removed while it was read in place");
  }
  const std::int64_t failures = row.failures + 1;
  const bool quarantine = !retryable || failures >= settings_.limits.attempts;
  const auto pause =
      settings_.limits.retry_delay * (std::int64_t{1} << std::min<std::int64_t>(failures - 1, 10));
  EVALCAR_RETURN_IF_ERROR(store_->fail_attempt(
      row.id, failure, format_utc(around_.clock.wall_now() + pause), quarantine));
  spdlog::error("{}: {} (at {}): {}", title(row),
                quarantine ? "failed, quarantined" : "failed, will be tried again", failure.stage,
                failure.message);
  if (quarantine) release(row);
  return {};
}

Status OutputDirectory::publish(const state::Evaluation& row) {
  if (!run_.has_value() || read_mark(around_.files, home()) != run_->mark) {
    return not_published(
        make_error(ErrorCode::kUnavailable,
                   path_ + ": is not what it was; nothing is published before that is clear"));
  }
  std::optional<std::int64_t> lag;
  if (newest_step().has_value()) lag = std::max<std::int64_t>(0, *newest_step() - row.step);
  const auto published = publisher_->publish(row.id, lag);
  if (!published.has_value()) {
    publish_failures_ = 0;  // a new result gets all its tries
    return not_published(published.error());
  }
  spdlog::info("{}: published{} ({})", title(row), published->is_best ? ", the best so far" : "",
               published->results_file);
  return {};
}

Status OutputDirectory::end(std::int64_t evaluation, EvaluationState to,
                            const std::string& reason) {
  EVALCAR_RETURN_IF_ERROR(store_->transition(evaluation, to, reason));
  EVALCAR_ASSIGN_OR_RETURN(const state::Evaluation row, store_->read().evaluation(evaluation));
  spdlog::info("{}: {}: {}", title(row), state::state_name(to), reason);
  return {};
}

// ---- disk space

std::uint64_t OutputDirectory::folder_bytes(const std::string& path, int depth) const {
  std::uint64_t bytes = 0;
  const auto entries = around_.files.list(path);
  if (!entries.has_value()) return 0;
  for (const DirectoryEntry& entry : *entries) {
    const std::string child = join_path(path, entry.name);
    if (entry.type == FileType::kDirectory && depth > 1) bytes += folder_bytes(child, depth - 1);
    if (entry.type != FileType::kRegular) continue;
    if (const auto info = around_.files.info(child); info.has_value()) bytes += info->size_bytes;
  }
  return bytes;
}

/// Measured now: when the weights are whole, the optimizer's files are still to come. The newest
/// folder and the newest whole one, for the newest may have just begun.
std::uint64_t OutputDirectory::min_free() const {
  if (settings_.limits.min_free.has_value()) return *settings_.limits.min_free;
  std::set<std::string> folders;
  if (!present_.empty()) folders.insert(present_.rbegin()->second);
  if (!complete_.empty()) folders.insert(complete_.rbegin()->second.path);
  std::uint64_t largest = 0;
  for (const std::string& folder : folders) largest = std::max(largest, folder_bytes(folder, 4));
  return 2 * largest;
}

std::uint64_t OutputDirectory::copy_budget() const {
  const auto free = around_.files.free_bytes(path_);
  const std::uint64_t keep = min_free();
  if (!free.has_value() || *free <= keep) return 0;
  return std::min(*free - keep, settings_.limits.lease_budget.value_or(
                                    std::numeric_limits<std::uint64_t>::max()));
}

/// Over the rows, not over what this process leased: most leases may be of an earlier one.
Status OutputDirectory::guard_disk() {
  const MonotonicTime now = around_.clock.monotonic_now();
  if (!run_.has_value() || now - guarded_at_ < kGuardPause) return {};
  guarded_at_ = now;
  state::EvaluationFilter filter;
  filter.run_id = run_->id;
  filter.states = kMayHoldLease;
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, store_->read().evaluations(filter));  // oldest first
  std::uint64_t held = 0;
  std::vector<std::pair<state::Evaluation, std::uint64_t>> candidates;
  for (const state::Evaluation& row : rows) {
    const std::uint64_t bytes = stage_->held_bytes(row.lease_path);
    held += bytes;
    if (bytes > 0 && row.id != active_) candidates.emplace_back(row, bytes);
  }
  const auto free = around_.files.free_bytes(path_);
  if (candidates.empty() || !free.has_value()) return {};
  const std::uint64_t budget =
      settings_.limits.lease_budget.value_or(std::numeric_limits<std::uint64_t>::max());
  const std::uint64_t keep = min_free();
  std::uint64_t freed = 0;
  for (const auto& [row, bytes] : candidates) {
    const bool low = *free + freed < keep;
    if (!low && held - freed <= budget) break;
    EVALCAR_RETURN_IF_ERROR(end(
        row.id, EvaluationState::kLost,
        low ? "its lease was given up: free disk space is below " + config::format_bytes(keep) +
                  " (limits.min_free)"
            : "its lease was given up: limits.lease_budget is " + config::format_bytes(budget)));
    release(row);
    freed += bytes;
  }
  return {};
}

// ---- the whole

Result<bool> OutputDirectory::quiet() {
  const bool given_up = publishing_fails();
  if (!untold_.empty() || (publish_again_ && !given_up) || !watcher_->settled()) return false;
  if (!run_.has_value()) return true;
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, store_->read().evaluations({.run_id = run_->id}));
  return std::none_of(rows.begin(), rows.end(), [given_up](const state::Evaluation& row) {
    if (row.state == EvaluationState::kScored && given_up) return false;
    return !state::is_end_state(row.state) && row.state != EvaluationState::kFound;
  });
}

Status OutputDirectory::close_torn() {
  for (const auto& [key, seen] : torn_) {
    EVALCAR_ASSIGN_OR_RETURN(const state::Evaluation row, record(seen));
    if (row.state != EvaluationState::kFound) continue;
    EVALCAR_ASSIGN_OR_RETURN(const bool unwanted, end_if_unwanted(row));
    if (unwanted) continue;
    spdlog::error("{}: incomplete: {}", title(row), seen.reason);
    EVALCAR_RETURN_IF_ERROR(
        store_->fail_attempt(row.id, {"watching", "corruption", seen.reason}, "", true));
  }
  torn_.clear();
  return {};
}

Result<Tally> OutputDirectory::tally() const {
  Tally tally;
  if (!run_.has_value()) return tally;
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, store_->read().evaluations({.run_id = run_->id}));
  for (const state::Evaluation& row : rows) {
    ++tally.total;
    if (row.state == EvaluationState::kPublished) ++tally.published;
    if (row.state == EvaluationState::kScored) ++tally.unpublished;
    if (row.state == EvaluationState::kQuarantined || row.state == EvaluationState::kLost) {
      ++tally.failed;
    }
    if (!state::is_end_state(row.state)) ++tally.open;
  }
  return tally;
}

void OutputDirectory::write_status(const publish::AgentFacts& facts, bool now) {
  const MonotonicTime time = around_.clock.monotonic_now();
  if (!now && time - status_at_ < kStatusPause) return;
  status_at_ = time;
  publish::AgentFacts mine = facts;
  mine.latest_step = newest_step();
  std::optional<std::int64_t> run;
  if (run_.has_value()) run = run_->id;
  // Until the first checkpoint is there, the output directory stays as the trainer made it.
  std::string trouble;
  std::vector<std::string> places = {database_ + ".status.json"};
  if (begun_) {
    // A removed output directory is not ours to make again.
    const bool there = around_.files.info_followed(path_).has_value();
    const Status made = there ? make_directories(around_.files, publish_dir()) : Status();
    if (made.has_value()) places.insert(places.begin(), join_path(publish_dir(), "status.json"));
    if (!made.has_value()) trouble = made.error().message;
  }
  for (const std::string& path : places) {
    const Status written =
        publish::write_status(around_.files, store_->read(), around_.clock, path, run, mine);
    if (written.has_value()) break;
    trouble = written.error().message;
  }
  warn_once(status_trouble_, trouble);
}

}  // namespace evalcar::run
