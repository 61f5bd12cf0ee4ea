// Faults around the checkpoints: the device, the data, the settings or the evaluator's program.
// Every evaluation would end alike, so none is begun for a while, which is longer each time. A
// person repairs them: it costs a start of the evaluator, maybe a load, to see whether that was
// done.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "agent/config/settings.h"
#include "agent/supervise/supervisor.h"
#include "store/base/clock.h"

namespace evalcar::run {

/// No pause is longer.
inline constexpr std::chrono::minutes kLongestObstacle{5};

/// Not thread-safe. `clock` and `limits` must outlive it.
class Obstacles {
 public:
  Obstacles(const Clock& clock, const config::LimitSettings& limits)
      : clock_(clock), limits_(limits), until_(clock.monotonic_now()) {}

  /// An evaluation met one. The pause that begins now.
  std::chrono::milliseconds meet(const supervise::JobFailed& obstacle);
  /// An evaluation ended as its checkpoint deserved: nothing is in the way.
  void clear();
  /// What stood in the way may be over: the pause ends.
  void end_pause() {
    until_ = clock_.monotonic_now();
    forget_standing();
  }
  /// Weights were loaded, or nothing waits that could meet it: nothing is known to be in the way.
  void forget_standing() { standing_.clear(); }
  /// A person says so: also of data that were missing.
  void take_for_repaired();
  /// No evaluation is begun before then.
  MonotonicTime until() const { return until_; }
  /// What stands in the way, for people; "" if nothing is known to.
  const std::string& standing() const { return standing_; }
  /// The last one was of the data: a look at them tells whether it is over.
  bool of_data() const { return of_data_; }
  /// `obstacle`, which was met last, may be a matter of the moment: what does not come up, or is
  /// used by others. For as many tries as a checkpoint has.
  bool may_pass(const supervise::JobFailed& obstacle) const;
  /// The configuration is to be changed.
  static bool is_of_configuration(const supervise::JobFailed& obstacle);

 private:
  const Clock& clock_;
  const config::LimitSettings& limits_;
  std::int64_t met_ = 0;  ///< since an evaluation last went well
  MonotonicTime until_;
  bool of_data_ = false;
  std::string standing_;
};

}  // namespace evalcar::run
