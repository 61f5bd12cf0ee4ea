// Time as a dependency: durations come from a monotonic clock, names and reports from the wall
// clock.
#pragma once

#include <chrono>
#include <string>

namespace evalcar {

using WallTime = std::chrono::time_point<std::chrono::system_clock, std::chrono::microseconds>;
using MonotonicTime = std::chrono::time_point<std::chrono::steady_clock, std::chrono::nanoseconds>;

/// Gives the time. Thread-safe. Tests use FakeClock (tests/unit/support/fake_clock.h), which moves
/// only when told.
class Clock {
 public:
  virtual ~Clock() = default;
  /// For dates in files and tables; can jump.
  virtual WallTime wall_now() const = 0;
  /// For every time-out, age and duration; never jumps.
  virtual MonotonicTime monotonic_now() const = 0;
  /// How long the calling thread has had a processor: differences alone mean something.
  virtual std::chrono::nanoseconds thread_time() const = 0;
};

/// The machine's clocks.
class SystemClock final : public Clock {
 public:
  WallTime wall_now() const override;
  MonotonicTime monotonic_now() const override;
  std::chrono::nanoseconds thread_time() const override;
};

/// "2026-11-21T09:00:05.123456Z": UTC, microseconds, whatever the locale and zone of the machine.
std::string format_utc(WallTime time);

}  // namespace evalcar
