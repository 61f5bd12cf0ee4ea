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
  std::chrono::nanoseconds thread_time() const override {
    const std::scoped_lock lock(mutex_);
    return thread_;
  }
  /// All clocks go on: whoever asks was at work.
  void advance(std::chrono::nanoseconds by) {
    preempt(by);
    const std::scoped_lock lock(mutex_);
    thread_ += by;
  }
  /// Time goes on while others have the processor.
  void preempt(std::chrono::nanoseconds by) {
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
  std::chrono::nanoseconds thread_{0};
};

}  // namespace evalcar::test
