#include "agent/run/agent.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "agent/run/agent_facts.h"
#include "agent/run/evaluation_settings.h"
#include "agent/run/job_start.h"
#include "agent/run/retry_pause.h"

namespace evalcar::run {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// Retries of what failed for a reason of the moment, and of evaluations that wait for their time.
constexpr seconds kSchedulePause{1};
constexpr seconds kIdleTurn{30};  ///< the heartbeat of status.json
constexpr seconds kBusyTurn{1};

}  // namespace

Agent::Agent(const Surroundings& around, const config::Settings& settings, AgentOptions options,
             std::unique_ptr<supervise::Evaluator> evaluator)
    : around_(around),
      settings_(settings),
      options_(options),
      supervisor_(std::move(evaluator), around.clock, supervisor_options(settings.limits)),
      data_(around, settings),
      directories_(around, settings),
      started_at_(around.clock.monotonic_now()),
      schedule_again_at_(started_at_),
      job_retry_at_(started_at_),
      obstacles_(around.clock, settings.limits),
      look_ahead_(around.clock, settings.evaluate, supervisor_),
      residence_(around.clock, settings.evaluate, supervisor_),
      program_(identity_of_program(around.files, around.evaluator_program)),
      complaints_(around.clock),
      end_(around, settings, options, directories_, supervisor_, data_, complaints_) {}

Agent::~Agent() { supervisor_.stop(); }

Result<std::unique_ptr<Agent>> Agent::create(const Surroundings& around,
                                             const config::Settings& settings, AgentOptions options,
                                             std::unique_ptr<supervise::Evaluator> evaluator) {
  std::unique_ptr<Agent> agent(new Agent(around, settings, options, std::move(evaluator)));
  for (const std::string& path : settings.watch.output_dir) {
    const auto opened = agent->directories_.open(path);
    if (!opened.has_value()) return opened.error();
  }
  if (around.board != nullptr) around.board->keep_only(agent->directories_.paths());
  if (around.desk != nullptr) {
    agent->jobs_ = std::make_unique<JobList>(
        around, *around.desk,
        [self = agent.get()](const std::string& path) { return self->open_directory(path); });
  }
  return agent;
}

void Agent::step() {
  if (exit_code_.has_value()) return;
  step_directories();
  if (exit_code_.has_value()) return;
  step_jobs();
  close_served();
  look_at_data();
  step_job();
  if (exit_code_.has_value()) return;
  if (job_ != nullptr && begins_) make_way();
  if (job_ != nullptr && begins_) look_ahead();
  if (job_ == nullptr) residence_.step(false);
  if (job_ == nullptr && begins_) start_next();
  if (job_ == nullptr && directories_.waiting_count() == 0) obstacles_.forget_standing();
  write_status(StatusTurn::kWhenDue);
  if (!exit_code_.has_value()) look_at_end();
}

void Agent::look_at_end() {
  const AgentEnd::Turn turn = end_.step(job_ != nullptr);
  exit_code_ = turn.exit_code;
  if (turn.one_waits) schedule_again_at_ = around_.clock.monotonic_now();
}

void Agent::step_directories() {
  for (const auto& directory : directories_.all()) {
    const Status turn = directory->step();
    complaints_.take(directory->path(), turn);
    // One that a job brought ends that job, and not who serves others.
    if (directory->fatal() && !options_.serve) exit_code_ = kFailed;
    if (const std::string why = directory->store().must_end();
        !why.empty() && !exit_code_.has_value()) {
      spdlog::error("{}", why);
      exit_code_ = kFailed;
    }
    if (directory->take_retry_asked()) {
      obstacles_.take_for_repaired();
      data_.hurry();
    }
    const std::set<std::int64_t> superseded = directory->take_superseded();
    if (job_ != nullptr && &job_->directory() == directory.get() &&
        superseded.contains(job_->row().id)) {
      job_->abandon();
      end_job();
    }
    if (!superseded.empty()) schedule_again_at_ = around_.clock.monotonic_now();
  }
}

/// What was asked for over HTTP.
void Agent::step_jobs() {
  if (jobs_ == nullptr) return;
  const bool works = job_ != nullptr && job_->work().has_value();
  complaints_.take("the jobs",
                   jobs_->step(directories_.all(), works ? job_->work()->task : std::string()));
  if (job_ == nullptr || !jobs_->is_cancelled(job_->directory(), job_->row().id)) return;
  OutputDirectory& directory = job_->directory();
  const std::int64_t evaluation = job_->row().id;
  job_->abandon();
  complaints_.take(directory.path(), directory.drop_requested(evaluation));
  end_job();
}

/// What jobs brought is not kept from an agent of its own for longer than they need it.
void Agent::close_served() {
  if (!options_.serve || jobs_ == nullptr) return;
  const auto is_needed = [this](const OutputDirectory& directory) {
    return jobs_->needs(directory) || (job_ != nullptr && &job_->directory() == &directory);
  };
  bool any = false;
  directories_.close_idle(is_needed, [this, &any](const OutputDirectory& closed) {
    spdlog::info("{}: no job needs it any more", closed.path());
    jobs_->forget(closed);
    any = true;
  });
  // What it said last is of nobody any more.
  if (any && around_.board != nullptr) around_.board->keep_only(directories_.paths());
}

Result<OutputDirectory*> Agent::open_directory(const std::string& path) {
  if (!options_.serve) {
    const bool may_be_ours = std::ranges::any_of(directories_.all(), [this](const auto& one) {
      return !around_.files.real_path(one->path()).has_value();
    });
    if (may_be_ours) return static_cast<OutputDirectory*>(nullptr);
    return make_error(ErrorCode::kInvalidArgument,
                      path + ": is not an output directory of this agent (watch.output_dir)");
  }
  return directories_.open_served(path);
}

/// An evaluation asks for itself whether its data are there. The look is for people, at the start,
/// and for what waits.
void Agent::look_at_data() {
  if (settings_.evaluate.tasks.empty()) return;  // jobs bring theirs
  const bool first = data_.looks() == 0 && !options_.once;
  if (!data_.step(first || directories_.any_in_part())) return;
  schedule_again_at_ = around_.clock.monotonic_now();
  if (data_.improved()) end_pause();
  write_status(StatusTurn::kSoon);
}

/// Another program is taken up between two jobs: what the old one could not do, it may.
void Agent::look_at_program() {
  const std::string now = identity_of_program(around_.files, around_.evaluator_program);
  if (now.empty() || now == program_ || supervisor_.busy()) return;
  program_ = now;
  spdlog::info("{} was replaced: it is started anew", around_.evaluator_program);
  supervisor_.rest();
  end_pause();
}

/// What stood in the way may be over.
void Agent::end_pause() {
  schedule_again_at_ = around_.clock.monotonic_now();
  obstacles_.end_pause();
  directories_.end_rest();
}

void Agent::step_job() {
  for (supervise::JobEvent& event : supervisor_.step()) {
    look_ahead_.note(event);
    if (std::holds_alternative<supervise::JobLoaded>(event)) obstacles_.forget_standing();
    if (job_ != nullptr) job_->take(std::move(event));
  }
  if (job_ == nullptr) return;
  const MonotonicTime now = around_.clock.monotonic_now();
  if (now < job_retry_at_) return;
  const Status turn = job_->step();
  complaints_.take(job_->row().checkpoint, turn);
  if (!turn.has_value()) {
    job_retry_at_ = now + pause_after_turn(settings_.limits);
  }
  if (!job_->done()) return;
  if (job_->missed_data()) data_.doubt();
  const auto& obstacle = job_->obstacle();
  if (obstacle.has_value() && obstacle->kind == protocol::kData && !data_.all_missing()) {
    job_->directory().rest_without_data(job_->row());
  } else if (obstacle.has_value()) {
    meet_obstacle(*obstacle);
  } else {
    obstacles_.clear();
    end_.note_measured();
  }
  end_job();
}

void Agent::meet_obstacle(const supervise::JobFailed& obstacle) {
  const milliseconds pause = obstacles_.meet(obstacle);
  // Should it be of this checkpoint alone after all, the others are not kept waiting by it.
  job_->directory().rest(job_->row().id, obstacles_.until() + pause / 2);
  (void)job_->directory().waiting();  // it is one of those that wait again
  if (!options_.once || obstacles_.may_pass(obstacle)) return;
  exit_code_ = Obstacles::is_of_configuration(obstacle) ? kConfiguration : kFailed;
  spdlog::error(kLeftWaiting);
}

void Agent::end_job() {
  job_->directory().set_active(std::nullopt);
  job_.reset();
  residence_.note_end();
  look_ahead_.end();
  if (jobs_ != nullptr) jobs_->hurry();
  schedule_again_at_ = job_retry_at_ = around_.clock.monotonic_now();
  write_status(StatusTurn::kSoon);
}

/// An evaluation that has told the score of a part goes back to the queue for a newer checkpoint.
/// Nothing but the batch that runs is lost, and the loaded weights; under `latest` it is given up
/// for that one.
void Agent::make_way() {
  const bool asked = settings_.evaluate.preempt;
  if (!asked || settings_.evaluate.policy == config::Policy::kEvery || !job_->may_yield()) return;
  OutputDirectory& directory = job_->directory();
  const MonotonicTime now = around_.clock.monotonic_now();
  if (directory.last_news() < newer_asked_at_ && now - newer_asked_at_ < kSchedulePause) return;
  newer_asked_at_ = now;
  const auto waiting = directory.waiting();
  if (!waiting.has_value()) return complaints_.take(directory.path(), waiting.error());
  const auto written_ns = directory.store().read().written_at(job_->row().id);
  if (!written_ns.has_value()) return complaints_.take(directory.path(), written_ns.error());
  const auto newer = schedule::newer_than({job_->row().step, *written_ns}, *waiting);
  if (!newer.has_value()) return;
  const Status yielded = job_->yield("the newer checkpoint of step " + std::to_string(*newer) +
                                     " goes first (evaluate.preempt); the answers are kept");
  if (!yielded.has_value()) return complaints_.take(job_->row().checkpoint, yielded);
  end_job();
}

void Agent::look_ahead() {
  const Status told = look_ahead_.step(directories_, next_directory_, job_->row());
  complaints_.take("the look ahead", told);
}

void Agent::start_next() {
  const MonotonicTime now = around_.clock.monotonic_now();
  look_at_program();
  if (!supervisor_.ready() || now < obstacles_.until()) return;
  if (obstacles_.of_data() && data_.all_missing()) return;  // the next look at the data tells
  // Else the rows say what they said before.
  if (!directories_.any_news_since(asked_at_) && now < schedule_again_at_) return;
  asked_at_ = now;
  const Directories::All& all = directories_.all();
  for (std::size_t i = 0; i < all.size() && job_ == nullptr; ++i) {
    OutputDirectory& directory = *all[(next_directory_ + i) % all.size()];
    auto started = start_job(around_, directory, supervisor_, settings_, program_);
    if (started.has_value()) job_ = std::move(*started);
    complaints_.take(directory.path(), started.has_value() ? Status() : Status(started.error()));
  }
  if (job_ != nullptr) {
    next_directory_ = (next_directory_ + 1) % all.size();
    if (jobs_ != nullptr) jobs_->hurry();
    write_status(StatusTurn::kSoon);
  } else {
    schedule_again_at_ = now + kSchedulePause;
    if (options_.once && directories_.looked() && directories_.only_data_are_missing()) {
      exit_code_ = kFailed;
      return spdlog::error(kLeftWaiting);
    }
    complete_one();
    residence_.step(true);
  }
}

/// Nothing waits: what was published in part may be completed.
void Agent::complete_one() {
  if (directories_.waiting_count() > 0) return;  // for its next try
  const Circumstances now = circumstances();
  for (const auto& directory : directories_.all()) {
    const auto taken = directory->complete_one(now);
    if (!taken.has_value()) return complaints_.take(directory->path(), taken.error());
    if (!*taken) continue;
    schedule_again_at_ = around_.clock.monotonic_now();
    return;
  }
  end_.note_completed(now.look);
}

int Agent::stop() {
  put_down_work();
  int code = exit_code_.has_value() ? *exit_code_ : end_.code_of_rows();
  // Told to stop: having found nothing is no failure.
  if (!exit_code_.has_value() && code == kNothing) code = kDone;
  write_status(StatusTurn::kAtOnce, code);
  return code;
}

void Agent::hand_over() {
  put_down_work();
  write_status(StatusTurn::kAtOnce);
}

void Agent::put_down_work() {
  if (job_ != nullptr) {
    job_->interrupt();
    end_job();
  }
  supervisor_.stop();
}

milliseconds Agent::until_due() const {
  const MonotonicTime now = around_.clock.monotonic_now();
  const auto until = [now](MonotonicTime time) {
    return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(time - now));
  };
  milliseconds due = job_ != nullptr ? milliseconds(kBusyTurn) : milliseconds(kIdleTurn);
  due = directories_.until_due(due);
  if (const auto deadline = supervisor_.until_deadline(); deadline.has_value()) {
    due = std::min(due, *deadline);
  }
  if (job_ != nullptr && job_->flush_due().has_value()) {
    due = std::min(due, until(std::max(*job_->flush_due(), job_retry_at_)));
  }
  // The end of the child that hashes shows on no descriptor.
  if (job_ != nullptr && job_->hashing()) due = std::min(due, milliseconds(50));
  due = std::min(due, data_.until_due(directories_.any_in_part()));
  if (jobs_ != nullptr && jobs_->due().has_value()) due = std::min(due, until(*jobs_->due()));
  if (job_ != nullptr && job_retry_at_ > now) due = std::min(due, until(job_retry_at_));
  if (const auto rest = residence_.due(); rest.has_value()) due = std::min(due, until(*rest));
  if (job_ == nullptr && supervisor_.ready()) {
    const bool waiting = options_.once || directories_.waiting_count() > 0;
    if (waiting) due = std::min(due, until(std::max(schedule_again_at_, obstacles_.until())));
  }
  return due;
}

void Agent::add_descriptors(std::vector<pollfd>& descriptors) const {
  directories_.add_descriptors(descriptors);
  supervisor_.add_descriptors(descriptors);
  if (job_ != nullptr) job_->add_descriptors(descriptors);
  data_.add_descriptors(descriptors);
  if (jobs_ != nullptr) descriptors.push_back({jobs_->descriptor(), POLLIN, 0});
}

std::string Agent::progress(bool with_bar) const {
  if (job_ == nullptr) return "";
  return job_->row().checkpoint + " " + job_->row().kind + ": " + job_->progress(with_bar);
}

std::string Agent::hindrance() const {
  std::string why = hindrance_to_all();
  for (const auto& directory : directories_.all()) {
    if (why.empty()) why = directory->hindrance();
  }
  return why;
}

/// Whichever output directory it is of.
std::string Agent::hindrance_to_all() const {
  if (std::string stuck = supervisor_.stuck(); !stuck.empty()) return stuck;
  if (!obstacles_.standing().empty() && !obstacles_.of_data()) return obstacles_.standing();
  if (data_.all_missing()) return data_.warning();
  // Jobs bring tasks that nobody has looked for.
  return directories_.only_data_are_missing() ? "the data of all that waits are missing" : "";
}

void Agent::write_status(StatusTurn turn, std::optional<int> exit_code) {
  publish::AgentFacts facts =
      agent_facts(settings_.publish, supervisor_.hello(),
                  {data_.warning(), supervisor_.stuck(),
                   obstacles_.of_data() ? std::string() : obstacles_.standing()});
  facts.exit_code = exit_code;
  facts.hindrance = hindrance_to_all();
  facts.version = around_.version;
  facts.busy = job_ != nullptr;
  facts.uptime_s =
      std::chrono::duration<double>(around_.clock.monotonic_now() - started_at_).count();
  for (const auto& directory : directories_.all()) {
    facts.current.reset();
    if (job_ != nullptr && &job_->directory() == directory.get() && job_->work().has_value()) {
      const state::Evaluation& row = job_->row();
      facts.current = {row.id, row.step, row.kind, *job_->work()};
    }
    directory->write_status(facts, turn);
  }
}

}  // namespace evalcar::run
