// Reads the checkpoint that comes next, on a thread that is in nobody's way.
//
// The thread has the lowest priority for the processor and the disk, and may hang for as long as
// the disk does: nobody waits for it, and what it reads raises no pulse. One wish waits at a time;
// the newest is served.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>

#include "store/base/result.h"
#include "store/protocol/messages.h"

namespace evalcar::service {

/// Thread-safe. The thread starts with the first wish.
class BackgroundReader {
 public:
  /// What reads. How it ended is told to `std::cerr`: an error once, kCancelled never.
  using Read = std::function<Status(const protocol::Prefetch& wanted, std::stop_token stop)>;

  explicit BackgroundReader(Read read);
  /// Waits for the thread: where that may hang, ask end() first.
  ~BackgroundReader();
  BackgroundReader(const BackgroundReader&) = delete;
  BackgroundReader& operator=(const BackgroundReader&) = delete;

  /// In place of what is read or waits. Waits for nothing.
  void read(protocol::Prefetch wanted);
  /// Nothing is wanted any more. Waits for nothing.
  void stop();
  /// stop(), for good. False: the thread has not ended within `patience`.
  bool end(std::chrono::milliseconds patience);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace evalcar::service
