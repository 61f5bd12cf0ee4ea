// The evaluator's end of the socketpair: messages in through a queue, messages out under a lock.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "store/base/result.h"
#include "store/protocol/messages.h"

namespace evalcar::service {

/// Owns the descriptor. A thread of its own reads lines, so that `cancel`, `bye` and the death of
/// the agent are seen while a job runs: those reach `on_urgent` at once, on that thread, and are
/// queued as well. So does `prefetch`, which is of use only then, and is not queued.
class Channel {
 public:
  /// `fd` is a connected stream socket. `on_urgent` must be thread-safe.
  Channel(int fd, std::function<void(const protocol::Message&)> on_urgent);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// The next message; waits for it. Bye when the other end is closed or sends what is not a
  /// message: whoever does not speak the protocol is not our agent, and an evaluator without an
  /// agent ends.
  protocol::Message receive();
  /// Thread-safe. After a write failed (the agent is gone) further calls do nothing.
  void send(const protocol::Message& message);

 private:
  void read_loop();
  void enqueue(protocol::Message message);
  bool take_line(std::string_view line);

  int fd_;
  std::function<void(const protocol::Message&)> on_urgent_;
  std::mutex send_mutex_;
  bool broken_ = false;  // guarded by send_mutex_
  std::mutex queue_mutex_;
  std::condition_variable arrived_;
  std::deque<protocol::Message> queue_;  // guarded by queue_mutex_
  std::thread reader_;
};

}  // namespace evalcar::service
