// The evaluator's side of the conversation with the agent: loads weights, runs evaluations, tells
// how far it is.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>

#include "evaluator/engine/engine.h"
#include "evaluator/service/background_reader.h"
#include "evaluator/service/channel.h"
#include "evaluator/service/evaluation.h"
#include "evaluator/service/pulse.h"
#include "evaluator/tasks/data_check.h"
#include "store/base/clock.h"
#include "store/base/file_system.h"
#include "store/base/guarded.h"

namespace evalcar::service {

/// Serves one agent until it says bye or is gone. Returns the process's exit code.
class Session {
 public:
  /// What is passed by reference or pointer must outlive it.
  Session(int fd, std::unique_ptr<engine::Engine> engine, engine::DeviceDescription device,
          const FileSystem& files, const Clock& clock, const Kept& kept);
  int run();
  /// Nothing is read ahead any more. False: a read hangs for longer than `patience`. Then neither
  /// this nor what was passed to it may be destroyed: the process is to be left as it is.
  bool end_reading(std::chrono::milliseconds patience);

 private:
  struct Running {
    std::string id;
    std::stop_source stop;
    protocol::Progress latest;
  };

  /// A cancel can come before its job has begun: it is remembered until that job ends or another
  /// one begins. The agent has one job at a time, so then it was for one that had ended.
  struct Jobs {
    std::optional<Running> running;
    std::set<std::string> cancelled;
  };

  void on_urgent(const protocol::Message& message);
  /// Runs one job; an exception that reaches this far ends the job with an error.
  template <typename F>
  void guarded(const std::string& id, const std::string& stage, F&& job);
  void handle(const protocol::Load& load);
  void handle(const protocol::Evaluate& evaluate);
  void send_error(const std::string& id, const std::string& stage, const Error& error);
  /// Opens a job: from now on cancel reaches it and the heartbeat tells of it.
  std::stop_token begin(const std::string& id, const std::string& stage);
  void end();
  void tell(const std::string& id, const std::string& stage, const std::string& task,
            std::int64_t done, std::int64_t total);
  /// An error if the data of none of the tasks are there: before the weights, which take long.
  std::optional<protocol::JobError> check_data(const protocol::Load& load);
  Result<protocol::Loaded> load_weights(const protocol::Load& load, std::stop_token stop);
  Status read_ahead(const FileSystem& files, const protocol::Prefetch& wanted,
                    std::stop_token stop) const;
  void heartbeat(std::stop_token stop);

  std::unique_ptr<engine::Engine> engine_;
  engine::DeviceDescription device_;
  Pulse pulse_;
  const PulsingFileSystem files_;
  const Clock& clock_;
  const Kept kept_;
  tasks::DataCheck data_check_;
  std::optional<engine::LoadedWeights> weights_;
  std::optional<ModelText> model_;
  KnownAnswers known_;  // of the job that is about to start
  PreviousAnswers previous_;
  Guarded<Jobs> jobs_;
  std::atomic<bool> gone_ = false;
  BackgroundReader reader_;
  Channel channel_;  // last: its thread uses the members above
};

/// The kind of a JobError: of the device, or the code's name. What the agent decides on.
std::string job_error_kind(const Error& error);

}  // namespace evalcar::service
