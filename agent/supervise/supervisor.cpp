#include "agent/supervise/supervisor.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "agent/log/event.h"

namespace evalcar::supervise {
namespace {

using std::chrono::milliseconds;

constexpr int kUsageExit = 2;
/// A process that holds a device takes some seconds to end. One that a driver or a file system
/// keeps in the kernel does not end at all, whatever signal it gets.
constexpr std::chrono::seconds kEndingTakes{30};
constexpr std::string_view kDied = "evaluator_died";

/// What the same process cannot do, another can: the device's context is gone with it, or a smaller
/// batch may fit.
bool is_worth_another_try(std::string_view kind) {
  return kind == protocol::kOutOfMemory || kind == protocol::kDeviceFault;
}

/// The id of the job that a message answers; empty for messages without one.
std::string_view id_of(const protocol::Message& message) {
  return std::visit(
      [](const auto& m) -> std::string_view {
        if constexpr (requires { m.id; }) {
          return m.id;
        } else {
          return {};
        }
      },
      message);
}

}  // namespace

Supervisor::Supervisor(std::unique_ptr<Evaluator> evaluator, const Clock& clock,
                       SupervisorOptions options)
    : evaluator_(std::move(evaluator)),
      clock_(clock),
      options_(std::move(options)),
      patience_(clock, options_.stage_timeouts, options_.cancel_grace),
      not_before_(clock.monotonic_now()) {}

bool Supervisor::ready() const {
  if (state_ != State::kIdle || doomed_at_.has_value()) return false;
  return evaluator_->running() ? greeted_ : clock_.monotonic_now() >= not_before_;
}

void Supervisor::begin(Job job) {
  assert(ready());
  job_ = std::move(job);
  job_.load.settings = job_.settings;
  job_.load.settings->tasks = tasks_to_measure(job_);
  weights_sha256_.clear();
  if (evaluator_->running()) return send_load();
  greeted_ = false;
  enter(State::kStarting, "starting");
  if (const Status started = evaluator_->start(); !started.has_value()) {
    start_error_ = started.error().message;  // step() tells it, as a death
  } else {
    evaluator_->send(protocol::Hello{});
  }
}

void Supervisor::send_load() {
  enter(State::kLoading, "loading");
  patience_.expect_advance();
  evaluator_->send(job_.load);
}

void Supervisor::evaluate(std::vector<protocol::Answered> known) {
  assert(state_ == State::kLoaded);
  for (protocol::Answered& answer : known) {
    answer.id = job_.load.id;
    evaluator_->send(answer);
  }
  enter(State::kEvaluating, "preparing");
  patience_.expect_advance();
  evaluator_->send(
      protocol::Evaluate{job_.load.id, job_.settings, job_.measured, job_.interim_at, job_.series});
}

void Supervisor::prefetch(const protocol::Prefetch& next) {
  assert(state_ == State::kEvaluating);
  evaluator_->send(next);
}

void Supervisor::cancel() {
  if (state_ == State::kIdle || state_ == State::kCancelling) return;
  evaluator_->send(protocol::Cancel{job_.load.id});
  if (state_ == State::kStarting) kill_evaluator();  // nothing of worth is lost
  if (state_ == State::kLoaded) return enter(State::kIdle, "");
  enter(State::kCancelling, "cancelling");
}

bool Supervisor::resident() const {
  return state_ == State::kIdle && !doomed_at_.has_value() && evaluator_->running();
}

void Supervisor::rest() {
  if (state_ == State::kIdle && evaluator_->running()) stop();
}

void Supervisor::stop() {
  if (evaluator_->running()) {
    if (!dismissed_) log::info("the evaluator is ended", log::Event("evaluator_ended"));
    evaluator_->send(protocol::Bye{});
    evaluator_->kill();
    (void)evaluator_->poll();
  }
  // A process that holds a device takes its time to die: until it is seen to, none is started.
  dismissed_ = evaluator_->running();
  if (dismissed_) doom();
  greeted_ = false;
  enter(State::kIdle, "");
}

void Supervisor::add_descriptors(std::vector<pollfd>& descriptors) const {
  evaluator_->add_descriptors(descriptors);
}

std::vector<JobEvent> Supervisor::step() {
  std::vector<JobEvent> events;
  if (state_ == State::kStarting && !evaluator_->running()) {
    take_death({start_error_, std::nullopt}, events);
    return events;
  }
  for (const EvaluatorEvent& event : evaluator_->poll()) {
    if (const auto* message = std::get_if<protocol::Message>(&event)) {
      patience_.heard();
      take(*message, events);
    } else if (const auto* garbage = std::get_if<Garbage>(&event)) {
      fail_and_kill("corruption", "the evaluator does not speak the protocol: " + garbage->what,
                    events);
    } else {
      take_death(std::get<Exited>(event), events);
    }
  }
  if (auto lost = patience_.lost(); lost.has_value()) {
    fail_and_kill("timeout", std::move(*lost), events);
  }
  tell_if_stuck();
  return events;
}

std::optional<milliseconds> Supervisor::stuck_for() const {
  if (!doomed_at_.has_value()) return std::nullopt;
  const auto since = clock_.monotonic_now() - *doomed_at_;
  if (since < kEndingTakes) return std::nullopt;
  return std::chrono::floor<milliseconds>(since);
}

std::string Supervisor::stuck() const {
  const auto since = stuck_for();
  if (!since.has_value()) return "";
  return "the evaluator's process " + std::to_string(evaluator_->pid()) + " was killed " +
         std::to_string(std::chrono::floor<std::chrono::seconds>(*since).count()) +
         " s ago and does not end: a device's driver or a file system keeps it in the kernel. No "
         "evaluation begins before it is gone, since it may hold the device; the checkpoints wait "
         "with their leases";
}

void Supervisor::tell_if_stuck() {
  if (told_stuck_ || !stuck_for().has_value()) return;
  told_stuck_ = true;
  log::warn(stuck(), log::Event("evaluator_stuck").with("pid", evaluator_->pid()));
}

void Supervisor::take(const protocol::Message& message, std::vector<JobEvent>& events) {
  if (const auto* hello = std::get_if<protocol::Hello>(&message)) return take_hello(*hello, events);
  if (const auto* error = std::get_if<protocol::JobError>(&message)) {
    if (error->id.empty() || error->id == job_.load.id) take_error(*error, events);
    return;
  }
  if (id_of(message) != job_.load.id) return;  // of a job that was cancelled
  if (state_ == State::kCancelling) {
    if (std::holds_alternative<protocol::EvaluationResult>(message) ||
        std::holds_alternative<protocol::Loaded>(message)) {
      enter(State::kIdle, "");
    }
    return;
  }
  if (const auto* loaded = std::get_if<protocol::Loaded>(&message)) {
    take_loaded(*loaded, events);
  } else if (const auto* result = std::get_if<protocol::EvaluationResult>(&message)) {
    take_result(*result, events);
  } else if (const auto* progress = std::get_if<protocol::Progress>(&message)) {
    take_progress(*progress, events);
  } else if (const auto* prepared = std::get_if<protocol::Prepared>(&message)) {
    take_prepared(*prepared, events);
  } else if (const auto* sample = std::get_if<protocol::Sample>(&message)) {
    if (state_ == State::kEvaluating) events.emplace_back(*sample);
  } else if (const auto* scored = std::get_if<protocol::Scored>(&message)) {
    if (state_ == State::kEvaluating) events.emplace_back(*scored);
  } else if (const auto* interim = std::get_if<protocol::Interim>(&message)) {
    take_interim(*interim, events);
  } else {
    fail_and_kill("corruption", "the evaluator sent a message that only the agent sends", events);
  }
}

void Supervisor::take_hello(const protocol::Hello& hello, std::vector<JobEvent>& events) {
  if (hello.protocol != protocol::kProtocolVersion) {
    return fail_and_kill("unsupported",
                         "the evaluator speaks protocol " + std::to_string(hello.protocol) +
                             ", this agent speaks " + std::to_string(protocol::kProtocolVersion) +
                             ": install both from one build",
                         events);
  }
  log::info(fmt::format("evaluator {} on {} ({}), torch {}", hello.version, hello.device,
                        hello.device_name, hello.torch_version),
            log::Event("evaluator_started")
                .with("version", hello.version)
                .with("device", hello.device)
                .with("torch", hello.torch_version));
  if (!hello.warning.empty()) spdlog::warn("evaluator: {}", hello.warning);
  hello_ = hello;
  greeted_ = true;
  if (state_ == State::kStarting) send_load();
}

void Supervisor::take_progress(const protocol::Progress& progress, std::vector<JobEvent>& events) {
  if (state_ == State::kIdle) return;
  patience_.note(progress);
  events.emplace_back(progress);
}

/// In its turn, and without a mistake; else the evaluator is ended.
bool Supervisor::accept(std::string_view what, State turn, std::string mistake,
                        std::vector<JobEvent>& events) {
  if (state_ != turn) mistake = "the evaluator sent " + std::string(what) + " out of turn";
  if (mistake.empty()) return true;
  fail_and_kill("corruption", std::move(mistake), events);
  return false;
}

void Supervisor::take_loaded(const protocol::Loaded& loaded, std::vector<JobEvent>& events) {
  if (!accept("\"loaded\"", State::kLoading, mistake_in(loaded), events)) return;
  weights_sha256_ = loaded.weights_sha256;
  enter(State::kLoaded, "loaded");
  events.emplace_back(JobLoaded{loaded});
}

void Supervisor::take_prepared(const protocol::Prepared& prepared, std::vector<JobEvent>& events) {
  if (accept("\"prepared\"", State::kEvaluating, mistake_in(prepared), events))
    events.emplace_back(prepared);
}

void Supervisor::take_interim(const protocol::Interim& interim, std::vector<JobEvent>& events) {
  if (accept("an interim score", State::kEvaluating, mistake_in(interim, job_, weights_sha256_),
             events)) {
    events.emplace_back(interim);
  }
}

void Supervisor::take_result(const protocol::EvaluationResult& result,
                             std::vector<JobEvent>& events) {
  if (!accept("a result", State::kEvaluating, mistake_in(result, job_, weights_sha256_), events))
    return;
  deaths_ = 0;
  enter(State::kIdle, "");
  events.emplace_back(result);
}

void Supervisor::take_error(const protocol::JobError& error, std::vector<JobEvent>& events) {
  // Where the device is busy, ours must not stay on it: the next process asks first who uses it.
  const bool leaves =
      error.fatal || protocol::is_device_fault(error.kind) || error.kind == protocol::kDeviceBusy;
  if (leaves) kill_evaluator();
  if (state_ == State::kCancelling) {
    enter(State::kIdle, "");
  } else if (state_ != State::kIdle) {
    fail({error.kind, error.stage.empty() ? patience_.stage() : error.stage, error.message,
          error.retryable || is_worth_another_try(error.kind)},
         events);
  }
}

void Supervisor::take_death(const Exited& exited, std::vector<JobEvent>& events) {
  const JobFailed failure = failure_of(exited, doomed_at_.has_value() || exited.ended_by_us);
  const bool dismissed = std::exchange(dismissed_, false);
  greeted_ = false;
  doomed_at_.reset();
  if (std::exchange(told_stuck_, false)) spdlog::info("the evaluator's process has ended at last");
  if (dismissed) return;  // it was told to go, and nothing of it was wanted any more
  tell_of_end(exited);
  ++deaths_;
  const auto pause =
      std::min(options_.longest_pause, options_.first_pause * (1 << std::min(deaths_ - 1, 16)));
  not_before_ = clock_.monotonic_now() + pause;
  if (state_ == State::kCancelling) return enter(State::kIdle, "");
  if (state_ == State::kIdle) return;
  fail(failure, events);
}

/// The job's own line says why, with the last words.
void Supervisor::tell_of_end(const Exited& exited) {
  if (!exited.signal.has_value() && !exited.exit_code.has_value()) return;  // it never began
  log::Event event("evaluator_ended");
  if (exited.signal.has_value()) event.with("signal", std::int64_t{*exited.signal});
  if (exited.exit_code.has_value()) event.with("exit_code", std::int64_t{*exited.exit_code});
  log::info("the evaluator's process is gone", event);
}

JobFailed Supervisor::failure_of(const Exited& exited, bool killed_by_us) const {
  // It looked at its own command line and refused: the configuration must change.
  if (!greeted_ && exited.exit_code == kUsageExit) {
    return {std::string(error_code_name(ErrorCode::kInvalidArgument)), patience_.stage(),
            "the evaluator ended: " + exited.evidence, false};
  }
  // Nobody else sends that signal of its own accord: the kernel takes who has most when memory
  // runs out, and says nothing to anyone but its log.
  if (exited.signal == SIGKILL && !killed_by_us) {
    return {
        std::string(protocol::kOutOfMemory), patience_.stage(),
        "the evaluator ended: " + exited.evidence +
            "; this agent did not send that signal: most likely memory ran out (of the machine "
            "or of the control group) and the kernel took it. The next try has a smaller batch; "
            "a lower evaluate.max_pixels or evaluate.batch_size needs less",
        true};
  }
  const bool quiet_end = exited.exit_code == 0;
  return {
      std::string(kDied), patience_.stage(),
      std::string(quiet_end ? "the evaluator ended without a result: " : "the evaluator ended: ") +
          exited.evidence,
      true};
}

/// Before its hello the evaluator knows nothing of the checkpoint: whatever goes wrong is not the
/// checkpoint's fault.
void Supervisor::fail(JobFailed failure, std::vector<JobEvent>& events) {
  if (state_ == State::kStarting && !protocol::is_of_surroundings(failure.kind)) {
    failure.kind = protocol::kNoEvaluator;
  }
  failure.surroundings = protocol::is_of_surroundings(failure.kind);
  enter(State::kIdle, "");
  events.emplace_back(std::move(failure));
}

void Supervisor::fail_and_kill(std::string kind, std::string message,
                               std::vector<JobEvent>& events) {
  if (const std::string words = evaluator_->last_words(); !words.empty()) {
    message += "; its last words: " + words;
  }
  kill_evaluator();
  if (state_ == State::kIdle) return;
  if (state_ == State::kCancelling) return enter(State::kIdle, "");
  const bool retryable = kind == "timeout";
  fail({std::move(kind), patience_.stage(), std::move(message), retryable}, events);
}

void Supervisor::kill_evaluator() {
  if (!evaluator_->running()) return;
  doom();
  evaluator_->kill();
}

void Supervisor::doom() {
  if (!doomed_at_.has_value()) doomed_at_ = clock_.monotonic_now();
}

void Supervisor::enter(State state, std::string stage) {
  state_ = state;
  Awaited awaited = Awaited::kNothing;
  if (state == State::kStarting) awaited = Awaited::kStage;
  if (state == State::kLoading || state == State::kEvaluating) awaited = Awaited::kWork;
  if (state == State::kCancelling) awaited = Awaited::kCancel;
  patience_.enter(awaited, std::move(stage));
}

std::optional<milliseconds> Supervisor::until_deadline() const {
  std::optional<MonotonicTime> next = patience_.deadline();
  const MonotonicTime now = clock_.monotonic_now();
  if (!next.has_value() && !evaluator_->running() && not_before_ > now) next = not_before_;
  if (!next.has_value() && doomed_at_.has_value() && !told_stuck_)
    next = *doomed_at_ + kEndingTakes;
  if (!next.has_value()) return std::nullopt;
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(*next - now));
}

}  // namespace evalcar::supervise
