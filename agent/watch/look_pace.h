// How soon after a look the next one may be made for a hint: under a storm of changes looking stays
// a small part of one processor.
#pragma once

#include <chrono>

namespace evalcar::watch {

class LookPace {
 public:
  explicit LookPace(std::chrono::milliseconds shortest) : shortest_(shortest), pause_(shortest) {}

  /// A look took so long, of which this thread `worked` so long on a processor. On a local disk all
  /// of a look is this thread's own work, or waiting for a processor or the disk: others that keep
  /// both busy are no reason to look seldom. What a file server is asked costs time there, and
  /// another thread's.
  void looked(std::chrono::nanoseconds took, std::chrono::nanoseconds worked, bool local);
  std::chrono::milliseconds pause() const { return pause_; }

 private:
  std::chrono::milliseconds shortest_;
  std::chrono::milliseconds pause_;
};

}  // namespace evalcar::watch
