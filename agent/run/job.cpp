#include "agent/run/job.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>

#include "agent/publish/metrics_line.h"
#include "agent/run/batch_size.h"
#include "agent/run/rows.h"

namespace evalcar::run {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kProgressPause{2000};

/// Unlike any other of this process: each output directory's database counts its evaluations from
/// 1, and the evaluator must not take a cancel of the one for a cancel of another.
std::string new_job_id(const state::Evaluation& row) {
  static std::atomic<std::uint64_t> jobs{0};
  return std::to_string(row.id) + "." + std::to_string(row.attempts + 1) + "." +
         std::to_string(++jobs);
}

}  // namespace

Job::Job(const Surroundings& around, OutputDirectory& directory, supervise::Supervisor& supervisor,
         const config::Settings& settings, state::Evaluation row, stage::Lease lease,
         bool interim_told)
    : around_(around),
      directory_(directory),
      supervisor_(supervisor),
      row_(std::move(row)),
      lease_(std::move(lease)),
      answers_(around.clock),
      interims_(directory, interim_told),
      lease_check_(around, settings, row_.kind),
      progress_at_(around.clock.monotonic_now()) {}

Result<std::unique_ptr<Job>> Job::begin(const Surroundings& around, OutputDirectory& directory,
                                        supervise::Supervisor& supervisor,
                                        const config::Settings& settings, state::Evaluation row,
                                        stage::Lease lease, std::string evaluator) {
  const std::string device =
      supervisor.hello().has_value() ? supervisor.hello()->device : settings.evaluate.device;
  supervise::Job job;
  EVALCAR_ASSIGN_OR_RETURN(job.measured, directory.store().read().measured_tasks(row.id));
  EVALCAR_ASSIGN_OR_RETURN(const auto attempts, directory.store().read().attempts(row.id));
  EVALCAR_ASSIGN_OR_RETURN(const auto told, directory.store().read().interim_fraction(row.id));
  EVALCAR_RETURN_IF_ERROR(directory.store().begin_attempt(row.id, device));
  if (row.settings.requested == 0) job.interim_at = settings.evaluate.anytime;
  if (settings.evaluate.drafts) job.series = row.run + " " + row.kind;
  job.load.id = new_job_id(row);
  job.load.dir = lease.dir;
  job.load.weights = row.kind;
  job.load.dtype = row.dtype;
  job.load.base_model = settings.evaluate.base_model;
  job.settings = row.settings;
  job.settings.requested = 0;  // the evaluator knows nothing of it
  const std::int64_t asked = asked_batch_size(settings, row);
  job.settings.batch_size = next_batch_size(asked, row, attempts, settings.limits.attempts);
  if (job.settings.batch_size != asked) {
    spdlog::warn("{}: memory ran out before: {} at once", title(row), job.settings.batch_size);
  }
  log::info(fmt::format("{}: evaluating (attempt {})", title(row), row.attempts + 1),
            event_of("evaluating", row).with("attempt", row.attempts + 1).with("device", device));
  directory.set_active(row.id);
  std::unique_ptr<Job> made(new Job(around, directory, supervisor, settings, std::move(row),
                                    std::move(lease), told.has_value()));
  made->evaluator_ = std::move(evaluator);
  supervisor.begin(std::move(job));
  return made;
}

// ---- what the evaluator says

void Job::take(supervise::JobEvent event) {
  if (auto* sample = std::get_if<protocol::Sample>(&event)) {
    answers_.take(std::move(*sample));
  } else if (auto* scored = std::get_if<protocol::Scored>(&event)) {
    answers_.take(std::move(*scored));
  } else if (auto* progress = std::get_if<protocol::Progress>(&event)) {
    pace_.note(*progress, around_.clock.monotonic_now());
    progress_ = std::move(*progress);
    progress_written_ = false;
  } else if (const auto* loaded = std::get_if<supervise::JobLoaded>(&event)) {
    loaded_ = loaded->loaded;  // step() records it: the store may refuse for a moment
  } else if (auto* prepared = std::get_if<protocol::Prepared>(&event)) {
    prepared_ = std::move(*prepared);
  } else if (auto* interim = std::get_if<protocol::Interim>(&event)) {
    interims_.take(std::move(*interim));
  } else if (auto* result = std::get_if<protocol::EvaluationResult>(&event)) {
    take_result(std::move(*result));
  } else {
    fail(std::get<supervise::JobFailed>(std::move(event)));
  }
}

/// The evaluator waits with the weights loaded until they are recorded.
Status Job::record_loaded() {
  EVALCAR_ASSIGN_OR_RETURN(
      const auto outcome,
      directory_.store().record_loaded(row_.id, loaded_->weights_sha256, loaded_->dtype));
  const protocol::Loaded loaded = *std::exchange(loaded_, std::nullopt);
  weights_sha256_ = loaded.weights_sha256;
  log::info(
      fmt::format("{}: {} tensors, {} in {:.1f} s{}, weights {}…", title(row_), loaded.tensors,
                  config::format_bytes(loaded.bytes), loaded.seconds,
                  loaded.prefetched ? " (read ahead)" : "", loaded.weights_sha256.substr(0, 12)),
      event_of("loaded", row_)
          .with("weights_sha256", loaded.weights_sha256)
          .with("seconds", loaded.seconds));
  if (!outcome.differs.empty()) {
    supervisor_.cancel();
    fail({std::string(error_code_name(ErrorCode::kUnavailable)), "loading", outcome.differs});
    return {};
  }
  if (outcome.answers_discarded > 0) {
    spdlog::info("{}: {} answers are of other weights", title(row_), outcome.answers_discarded);
  }
  auto answers = directory_.store().read().answers(row_.id);
  if (!answers.has_value()) spdlog::warn("{}", answers.error().message);
  known_answers_ = answers.has_value() ? static_cast<std::int64_t>(answers->size()) : 0;
  supervisor_.evaluate(std::move(answers).value_or({}));
  return {};
}

/// What is to be measured is known now: perhaps it has been measured already. The evaluator goes on
/// meanwhile.
Status Job::record_prepared() {
  EVALCAR_ASSIGN_OR_RETURN(const auto outcome,
                           directory_.store().record_prepared(row_.id, prepared_->tasks));
  if (outcome.measured_by.has_value()) {
    EVALCAR_RETURN_IF_ERROR(take_numbers_of(*outcome.measured_by));
    prepared_.reset();
    return {};
  }
  prepared_.reset();
  if (outcome.duplicate_of.has_value()) {
    spdlog::info("{}: these very weights were measured before (evaluation {})", title(row_),
                 *outcome.duplicate_of);
    supervisor_.cancel();
    directory_.release(row_);
    done_ = true;
    return {};
  }
  const std::int64_t others = known_answers_ - outcome.answers_usable;
  if (outcome.answers_usable > 0) {
    spdlog::info("{}: {} answers are known already", title(row_), outcome.answers_usable);
  }
  if (others > 0) {
    spdlog::warn("{}: {} known answers are to other prompts or of other data: not used",
                 title(row_), others);
  }
  return {};
}

/// These weights were those of this step before others took their place: their numbers are its
/// result again, if its files are those of the lease.
Status Job::take_numbers_of(std::int64_t earlier) {
  EVALCAR_ASSIGN_OR_RETURN(auto result, directory_.store().read().result(earlier));
  std::erase_if(result.tasks, [this](const protocol::TaskResult& task) {
    const auto& own = row_.settings.tasks;
    return std::find(own.begin(), own.end(), task.task) == own.end();
  });
  result.seconds = 0;
  spdlog::info(
      "{}: these very weights were measured before others took their place (evaluation "
      "{}): its numbers are those of the step again",
      title(row_), earlier);
  supervisor_.cancel();
  take_result(std::move(result));
  return {};
}

/// A task that failed leaves the others standing; if none stands, the evaluation failed.
void Job::take_result(protocol::EvaluationResult result) {
  std::string errors;
  std::size_t failed = 0;
  std::string obstacle;
  for (protocol::TaskResult& task : result.tasks) {
    for (const std::string& flag : publish::flags_of(task)) {
      spdlog::warn("{}: {} is flagged: {}", title(row_), task.task, flag);
    }
    if (task.error.empty()) continue;
    ++failed;
    if (protocol::is_of_surroundings(task.error_kind)) obstacle = task.error_kind;
    missed_data_ |= task.error_kind == protocol::kData;
    if (task.error_kind != protocol::kData) task.circumstances = evaluator_;
    errors.append(errors.empty() ? "" : "; ").append(task.task).append(": ").append(task.error);
  }
  if (failed == result.tasks.size()) {
    return fail(
        {obstacle.empty() ? "task" : obstacle, "evaluating", errors, false, !obstacle.empty()});
  }
  if (failed > 0) spdlog::error("{}: {}", title(row_), errors);
  if (result.draft_tokens > 0) {
    spdlog::info("{}: of earlier answers, {} tokens of {} that were tried were right", title(row_),
                 result.draft_tokens_taken, result.draft_tokens);
  }
  in_part_ = failed > 0;
  result_ = std::move(result);
}

void Job::fail(supervise::JobFailed failure) {
  if (!failure_.has_value()) failure_ = std::move(failure);
}

// ---- what is written down

std::optional<MonotonicTime> Job::flush_due() const {
  return weights_sha256_.empty() ? std::nullopt : answers_.due();
}

Status Job::write_progress() {
  const MonotonicTime now = around_.clock.monotonic_now();
  if (progress_written_ || now - progress_at_ < kProgressPause) return {};
  progress_at_ = now;
  progress_written_ = true;
  return directory_.store().record_progress(row_.id, progress_->stage, progress_->done,
                                            progress_->total);
}

Status Job::step() {
  if (done_) return {};
  if (loaded_.has_value() && !failure_.has_value()) EVALCAR_RETURN_IF_ERROR(record_loaded());
  if (prepared_.has_value() && !failure_.has_value()) EVALCAR_RETURN_IF_ERROR(record_prepared());
  if (done_) return {};
  // Only an evaluation whose weights are known has answers; a failure before that has none.
  const bool believed = !failure_.has_value() || !protocol::is_device_fault(failure_->kind);
  if (!weights_sha256_.empty() && believed) {
    const bool all = result_.has_value() || failure_.has_value() || interims_.any_wait();
    EVALCAR_RETURN_IF_ERROR(answers_.write(directory_.store(), row_.id, all));
  }
  if (failure_.has_value()) return finish_failed();
  if (result_.has_value()) return finish();
  EVALCAR_RETURN_IF_ERROR(write_progress());
  return tell_interims();
}

Status Job::tell_interims() {
  return interims_.tell({.row = row_, .sha256 = weights_sha256_, .lease = lease_, .rehash = [this] {
                           return lease_check_.start_rehash(lease_);
                         }});
}

/// The reader saw files that were being written: that says nothing of what they become.
void Job::excuse_if_rewritten(supervise::JobFailed& failure) const {
  if (failure.retryable || failure.surroundings) return;
  std::string which;
  if (directory_.stage().check(lease_, &which) != stage::Integrity::kChanged) return;
  failure.retryable = true;
  failure.message += " (" + which + ": changed while it was measured)";
}

Status Job::finish_failed() {
  excuse_if_rewritten(*failure_);
  const state::AttemptFailure failure{failure_->stage, failure_->kind, failure_->message};
  missed_data_ |= failure_->kind == protocol::kData;
  if (failure_->surroundings) {
    EVALCAR_ASSIGN_OR_RETURN(const bool waits, directory_.put_back(row_, failure));
    if (waits) obstacle_ = failure_;
  } else {
    EVALCAR_RETURN_IF_ERROR(directory_.fail(row_, failure, failure_->retryable));
  }
  done_ = true;
  return {};
}

Status Job::finish() {
  interims_.leave_judging_to_result();
  if (!recorded_) {
    EVALCAR_ASSIGN_OR_RETURN(const auto why_not,
                             lease_check_.judge(directory_.stage(), lease_, weights_sha256_));
    if (!why_not.has_value()) return {};  // not ready
    if (!why_not->empty()) {
      fail({"unavailable", "verifying", *why_not, true});
      return finish_failed();
    }
  }
  return record_and_publish();
}

Status Job::record_and_publish() {
  if (!recorded_) {
    interims_.tell_with_result(row_);
    EVALCAR_RETURN_IF_ERROR(directory_.store().record_result(row_.id, *result_));
    recorded_ = true;
    log::info(fmt::format("{}: scored in {:.1f} s", title(row_), result_->seconds),
              event_of("evaluated", row_).with("seconds", result_->seconds));
  }
  done_ = true;  // from here on the directory's turns publish it, if this does not
  if (!in_part_) directory_.release(row_);
  return directory_.publish(row_);
}

// ---- the end

void Job::interrupt() {
  if (done_) return;
  supervisor_.stop();
  if (!weights_sha256_.empty()) {
    if (const Status kept = answers_.write(directory_.store(), row_.id, true); !kept.has_value()) {
      spdlog::warn("{}: {}", title(row_), kept.error().message);
    }
  }
  const Status back =
      directory_.store().transition(row_.id, state::EvaluationState::kLeased, "interrupted");
  if (!back.has_value()) spdlog::warn("{}: {}", title(row_), back.error().message);
  done_ = true;
}

bool Job::may_yield() const {
  if (!interims_.told() || done_ || failure_.has_value() || result_.has_value()) return false;
  if (!progress_.has_value()) return true;
  // With all answers there, what is left takes less than the next start of it would.
  const bool answered = progress_->total > 0 && progress_->done >= progress_->total;
  return progress_->stage != "scoring" && !(progress_->stage == "evaluating" && answered);
}

Status Job::yield(const std::string& reason) {
  if (!weights_sha256_.empty()) {
    EVALCAR_RETURN_IF_ERROR(answers_.write(directory_.store(), row_.id, true));
  }
  EVALCAR_RETURN_IF_ERROR(
      directory_.store().transition(row_.id, state::EvaluationState::kLeased, reason));
  supervisor_.cancel();
  spdlog::info("{}: {}", title(row_), reason);
  done_ = true;
  return {};
}

void Job::abandon() {
  supervisor_.cancel();
  done_ = true;
}

const std::optional<report::WorkDone>& Job::work() const {
  static const std::optional<report::WorkDone> kNoWork;
  return lease_check_.hashing() ? kNoWork : pace_.work();
}

std::string Job::progress(bool with_bar) const {
  if (lease_check_.hashing()) return "hashing again";
  return work().has_value() ? report::work_text(*work(), with_bar) : "loading";
}

void Job::add_descriptors(std::vector<pollfd>& descriptors) const {
  lease_check_.add_descriptors(descriptors);
  interims_.add_descriptors(descriptors);
}

}  // namespace evalcar::run
