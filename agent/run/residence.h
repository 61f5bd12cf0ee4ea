// When the evaluator's process gives all of the device's memory back between evaluations: it ends,
// and the next evaluation starts it again.
#pragma once

#include <optional>

#include "agent/config/settings.h"
#include "agent/supervise/supervisor.h"

namespace evalcar::run {

/// evaluate.keep_resident, evaluate.resident_idle, and a person who asks. Not thread-safe.
class Residence {
 public:
  /// All must outlive it.
  Residence(const Clock& clock, const config::EvaluateSettings& settings,
            supervise::Supervisor& supervisor)
      : clock_(clock), settings_(settings), supervisor_(supervisor) {}

  /// Somebody asks for the memory: it is given back as soon as no evaluation runs, also where the
  /// next one waits.
  void leave() { asked_ = true; }
  /// An evaluation has just ended.
  void note_end() { idle_since_ = clock_.monotonic_now(); }
  /// No evaluation runs. `nothing_waits`: and none could begin.
  void step(bool nothing_waits);
  /// When it was idle for long enough; absent: there is no such limit, or nothing to end.
  std::optional<MonotonicTime> due() const;

 private:
  const Clock& clock_;
  const config::EvaluateSettings& settings_;
  supervise::Supervisor& supervisor_;
  MonotonicTime idle_since_{};
  bool asked_ = false;
};

}  // namespace evalcar::run
