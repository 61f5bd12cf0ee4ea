// A lock whose holder has just been killed.
#pragma once

#include <chrono>
#include <thread>

namespace evalcar {

/// Calls `take` until it says true, for at most a second: a process that was killed keeps its locks
/// until it has ended, and so does a child that it had just forked and that had not come to exec.
/// On a machine in use that takes a moment, in which its successor may already be at its start.
/// Returns whether it said true. Blocks the calling thread.
template <typename Take>
bool outlast_dying_holder(const Take& take) {
  constexpr std::chrono::milliseconds kPause{20};
  for (int attempt = 0; attempt < 50; ++attempt) {
    if (take()) return true;
    std::this_thread::sleep_for(kPause);
  }
  return take();
}

}  // namespace evalcar
