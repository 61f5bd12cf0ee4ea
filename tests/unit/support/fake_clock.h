// A clock that moves only when a test says so.
#pragma once

#include <chrono>
#include <mutex>

#include "store/base/clock.h"

namespace evalcar::test {

/// Starts at 2026-11-21T09:00:00Z on the wall and 1000 s on the monotonic clock. Thread-safe.
class FakeClock final : public Clock {
 public:
  WallTime wall_now() const override {
    const std::scoped_lock lock(mutex_);
    return wall_;
  }
  MonotonicTime monotonic_now() const override {
    const std::scoped_lock lock(mutex_);
    return monotonic_;
  }
  /// Both clocks go on.
  void advance(std::chrono::nanoseconds by) {
    const std::scoped_lock lock(mutex_);
    wall_ += std::chrono::duration_cast<std::chrono::microseconds>(by);
    monotonic_ += by;
  }
  /// The wall clock alone jumps, as when somebody sets it.
  void jump_wall(std::chrono::microseconds by) {
    const std::scoped_lock lock(mutex_);
    wall_ += by;
  }

 private:
  mutable std::mutex mutex_;
  WallTime wall_{std::chrono::seconds{1795251600}};
  MonotonicTime monotonic_{std::chrono::seconds{1000}};
};

}  // namespace evalcar::test
