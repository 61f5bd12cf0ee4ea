// The sidecar: one loop that looks at the output directories, keeps one evaluation running, and
// sleeps in poll() between.
//
//   while (!agent.finished()) { agent.step(); poll(agent.descriptors, agent.until_due()); }
//
// step() never blocks on anything but the disk. Killing the process at any point loses nothing: the
// next start goes on from the store.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/run/agent_end.h"
#include "agent/run/complaints.h"
#include "agent/run/data_watch.h"
#include "agent/run/directories.h"
#include "agent/run/job.h"
#include "agent/run/job_list.h"
#include "agent/run/look_ahead.h"
#include "agent/run/obstacles.h"
#include "agent/run/residence.h"
#include "agent/supervise/supervisor.h"

namespace evalcar::run {

/// Not thread-safe.
class Agent {
 public:
  /// `around` and `settings` must outlive it.
  static Result<std::unique_ptr<Agent>> create(const Surroundings& around,
                                               const config::Settings& settings,
                                               AgentOptions options,
                                               std::unique_ptr<supervise::Evaluator> evaluator);
  ~Agent();

  /// One turn.
  void step();
  /// How long the loop may sleep if no descriptor wakes it.
  std::chrono::milliseconds until_due() const;
  void add_descriptors(std::vector<pollfd>& descriptors) const;
  /// The exit code, once there is nothing more to do (--once, exit_when_quiet) or nothing can be
  /// done.
  std::optional<int> finished() const { return exit_code_; }
  /// Interrupts the job and ends the evaluator; status.json says that and how it ended. Returns the
  /// exit code.
  int stop();
  /// The same for another agent in this process, which goes on at once: status.json says nothing of
  /// an end.
  void hand_over();
  /// All of the device's memory is given back as soon as no evaluation runs; the next one starts
  /// the evaluator again.
  void rest() { residence_.leave(); }
  /// The evaluation that runs goes on to its end, and no other is begun.
  void begin_no_more() { begins_ = false; }
  /// Only another agent of the same settings can go on (OutputDirectory::must_begin_anew).
  bool must_begin_anew() const { return directories_.must_begin_anew(); }
  /// No evaluation runs.
  bool between_evaluations() const { return job_ == nullptr; }
  /// What was there at the start is known (Directories::looked).
  bool looked() const { return directories_.looked(); }
  /// "checkpoint-500 ema: evaluating docvqa_val 120/5349, 31/s, 2 min 48 s left", or "": for
  /// people; with a bar if asked for.
  std::string progress(bool with_bar = false) const;
  /// Why nothing can be measured or handed out now (the device, the data, an evaluator that does
  /// not end, an output directory), for people; "" if nothing is known to stand in the way.
  std::string hindrance() const;

 private:
  Agent(const Surroundings& around, const config::Settings& settings, AgentOptions options,
        std::unique_ptr<supervise::Evaluator> evaluator);

  void step_directories();
  void step_jobs();
  void close_served();
  Result<OutputDirectory*> open_directory(const std::string& path);
  void step_job();
  void make_way();
  void look_ahead();
  void start_next();
  void complete_one();
  void end_job();
  void look_at_data();
  void look_at_program();
  void end_pause();
  Circumstances circumstances() const { return {data_.report(), program_, data_.looks()}; }
  void meet_obstacle(const supervise::JobFailed& obstacle);
  void look_at_end();
  void put_down_work();
  std::string hindrance_to_all() const;
  void write_status(StatusTurn turn, std::optional<int> exit_code = {});

  const Surroundings& around_;
  const config::Settings& settings_;
  AgentOptions options_;
  supervise::Supervisor supervisor_;
  DataWatch data_;
  Directories directories_;
  std::unique_ptr<JobList> jobs_;  ///< null: there is no HTTP API
  std::unique_ptr<Job> job_;
  std::size_t next_directory_ = 0;
  std::optional<int> exit_code_;
  MonotonicTime started_at_{};
  MonotonicTime asked_at_{};           ///< when the rows were last asked what waits
  MonotonicTime schedule_again_at_{};  ///< when they are asked again without any news
  MonotonicTime newer_asked_at_{};     ///< when the rows were last asked for a newer checkpoint
  MonotonicTime job_retry_at_{};
  Obstacles obstacles_;
  LookAhead look_ahead_;
  Residence residence_;
  bool begins_ = true;   ///< begin_no_more() was not called
  std::string program_;  ///< identity_of_program() of what was started, or will be
  Complaints complaints_;
  AgentEnd end_;
};

}  // namespace evalcar::run
