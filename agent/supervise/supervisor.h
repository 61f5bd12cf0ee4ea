// One job at a time on an evaluator that may hang, lie or die.
//
//   idle --begin--> starting --hello--> loading --loaded--> waiting --evaluate()--> evaluating -->
//   idle
//
// The job's answers come out as events. Every job ends in exactly one JobFinished or JobFailed,
// whatever the evaluator does: each stage has a time-out, silence has one, heartbeats without
// advance have one, a process that dies or talks nonsense is killed and fails the job, and is
// started again, with a growing pause, for the next.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "agent/supervise/evaluator.h"
#include "agent/supervise/patience.h"
#include "agent/supervise/supervised_job.h"
#include "store/base/clock.h"

namespace evalcar::supervise {

/// The weights are resident. The caller answers with evaluate() or cancel().
struct JobLoaded {
  protocol::Loaded loaded;
};
struct JobFailed {
  std::string kind;   ///< protocol::JobError's kind, or "timeout" | "evaluator_died"
  std::string stage;  ///< where: "starting", "loading", …
  /// Of a process that died or had to be killed with how it ended and its last lines.
  std::string message;
  bool retryable = false;
  /// Not the checkpoint's: protocol::is_of_surroundings(kind), or the evaluator did not come up.
  bool surroundings = false;
};
using JobEvent =
    std::variant<JobLoaded, protocol::Progress, protocol::Prepared, protocol::Sample,
                 protocol::Scored, protocol::Interim, protocol::EvaluationResult, JobFailed>;

struct SupervisorOptions {
  Patience::Timeouts stage_timeouts;            ///< as in the configuration
  std::chrono::milliseconds first_pause{1000};  ///< after a death; doubles with each
  std::chrono::milliseconds longest_pause{60000};
  std::chrono::milliseconds cancel_grace{10000};  ///< then it is killed
};

/// Not thread-safe; step() is called from the agent's loop and never blocks.
class Supervisor {
 public:
  /// `clock` must outlive it.
  Supervisor(std::unique_ptr<Evaluator> evaluator, const Clock& clock, SupervisorOptions options);

  /// A job may begin: none runs, and the pause after a death is over.
  bool ready() const;
  /// A job runs, or one that was cancelled has not let go yet.
  bool busy() const { return state_ != State::kIdle; }
  /// Starts a job; the caller checked ready().
  void begin(Job job);
  /// After JobLoaded: what is known already, and go.
  void evaluate(std::vector<protocol::Answered> known);
  /// The job is being evaluated.
  bool evaluating() const { return state_ == State::kEvaluating; }
  /// While evaluating(): what will be loaded next, as far as is known. No event answers it.
  void prefetch(const protocol::Prefetch& next);
  /// Drops the job: no further event comes for it.
  void cancel();
  /// Takes what the evaluator said and looks at the clock.
  std::vector<JobEvent> step();
  /// For how long a process that was killed has been there, once that is longer than ending takes.
  /// None is started meanwhile: it may hold the device.
  std::optional<std::chrono::milliseconds> stuck_for() const;
  /// The same in words, or "".
  std::string stuck() const;
  /// How long until a deadline needs a step; absent: none.
  std::optional<std::chrono::milliseconds> until_deadline() const;
  /// A process is there though no job runs.
  bool resident() const;
  /// Ends the evaluator when no job runs, to free its memory.
  void rest();
  /// Ends the evaluator now, job or not.
  void stop();

  /// What the evaluator said of itself; absent before its first hello.
  const std::optional<protocol::Hello>& hello() const { return hello_; }
  void add_descriptors(std::vector<pollfd>& descriptors) const;

 private:
  enum class State { kIdle, kStarting, kLoading, kLoaded, kEvaluating, kCancelling };

  void take(const protocol::Message& message, std::vector<JobEvent>& events);
  void take_hello(const protocol::Hello& hello, std::vector<JobEvent>& events);
  bool accept(std::string_view what, State turn, std::string mistake,
              std::vector<JobEvent>& events);
  void take_loaded(const protocol::Loaded& loaded, std::vector<JobEvent>& events);
  void take_prepared(const protocol::Prepared& prepared, std::vector<JobEvent>& events);
  void take_interim(const protocol::Interim& interim, std::vector<JobEvent>& events);
  void take_result(const protocol::EvaluationResult& result, std::vector<JobEvent>& events);
  void take_error(const protocol::JobError& error, std::vector<JobEvent>& events);
  void take_death(const Exited& exited, std::vector<JobEvent>& events);
  static void tell_of_end(const Exited& exited);
  void fail(JobFailed failure, std::vector<JobEvent>& events);
  void kill_evaluator();
  void doom();
  void tell_if_stuck();
  JobFailed failure_of(const Exited& exited, bool killed_by_us) const;
  /// Fails the job and kills the evaluator: it can no longer be trusted.
  void fail_and_kill(std::string kind, std::string message, std::vector<JobEvent>& events);
  void take_progress(const protocol::Progress& progress, std::vector<JobEvent>& events);
  void enter(State state, std::string stage);
  void send_load();

  std::unique_ptr<Evaluator> evaluator_;
  const Clock& clock_;
  SupervisorOptions options_;
  State state_ = State::kIdle;
  Job job_;
  Patience patience_;
  MonotonicTime not_before_{};              ///< of the next start
  int deaths_ = 0;                          ///< since the last job that ended well
  bool greeted_ = false;                    ///< this process said hello
  std::optional<MonotonicTime> doomed_at_;  ///< when it was killed, while it is not seen to end
  bool told_stuck_ = false;                 ///< of the process that is doomed
  bool dismissed_ = false;                  ///< by stop(), and not yet seen to end
  std::string start_error_;                 ///< why it could not be started
  std::optional<protocol::Hello> hello_;
  std::string weights_sha256_;
};

}  // namespace evalcar::supervise
