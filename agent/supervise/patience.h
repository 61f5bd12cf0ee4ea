// How long an evaluator may take: each stage of a job has a time-out, silence has one, and so have
// signs of life without advance (a device or a file system that hangs).
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "store/base/clock.h"
#include "store/protocol/messages.h"

namespace evalcar::supervise {

/// What is waited for.
enum class Awaited {
  kNothing,
  kStage,   ///< the end of a stage of which nothing is heard
  kWork,    ///< the end of a stage, in which it has to speak and to advance
  kCancel,  ///< that it lets go of a job
};

/// Not thread-safe.
class Patience {
 public:
  using Timeouts = std::map<std::string, std::chrono::milliseconds>;
  /// `timeouts`: by stage, "heartbeat" and "stuck", as in the configuration; a day where there is
  /// none. `clock` must outlive it.
  Patience(const Clock& clock, Timeouts timeouts, std::chrono::milliseconds cancel_grace);

  /// A stage begins.
  void enter(Awaited awaited, std::string stage);
  /// It has work to do from now on; the ticks of its progress begin anew.
  void expect_advance();
  /// It said something.
  void heard();
  /// It told how far it is. A higher tick is an advance.
  void note(const protocol::Progress& progress);

  const std::string& stage() const { return stage_; }
  /// When patience ends; absent: nothing is waited for.
  std::optional<MonotonicTime> deadline() const;
  /// What took too long, in words; absent while there is time.
  std::optional<std::string> lost() const;

 private:
  std::optional<MonotonicTime> stage_deadline() const;
  std::optional<MonotonicTime> silence_deadline() const;
  std::optional<MonotonicTime> stuck_deadline() const;
  std::chrono::milliseconds timeout(const std::string& name) const;

  const Clock& clock_;
  Timeouts timeouts_;
  std::chrono::milliseconds cancel_grace_;
  Awaited awaited_ = Awaited::kNothing;
  std::string stage_;
  MonotonicTime stage_since_{};
  MonotonicTime heard_at_{};
  MonotonicTime advanced_at_{};  ///< when its tick last rose
  protocol::Progress progress_;  ///< the last one
};

}  // namespace evalcar::supervise
