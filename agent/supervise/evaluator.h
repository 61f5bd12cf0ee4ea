// The other side of the protocol as the agent sees it: something that takes messages, gives
// messages, and may die at any time. The real one is a child process (evaluator_process.h); tests
// use a scripted one.
#pragma once

#include <poll.h>

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "store/base/result.h"
#include "store/protocol/messages.h"

namespace evalcar::supervise {

/// The evaluator sent something that is not a message. It cannot be trusted any further.
struct Garbage {
  std::string what;
};

/// The evaluator is gone. `evidence`: exit code or signal in words, and the last lines it wrote.
struct Exited {
  std::string evidence;
  std::optional<int> exit_code;    ///< absent: a signal ended it
  std::optional<int> signal = {};  ///< which one
  /// This side sent the signal by itself, without Evaluator::kill(), for the reason in `evidence`.
  bool ended_by_us = false;
};

using EvaluatorEvent = std::variant<protocol::Message, Garbage, Exited>;

/// Not thread-safe; all calls come from the agent's loop. No call blocks.
class Evaluator {
 public:
  virtual ~Evaluator() = default;
  /// Starts it anew. The hello follows as a message. An error: it could not be started at all.
  virtual Status start() = 0;
  virtual bool running() const = 0;
  /// The id of its process, for people; 0 while none is running.
  virtual std::int64_t pid() const = 0;
  /// Queues a message.
  virtual void send(const protocol::Message& message) = 0;
  /// Moves bytes both ways and returns what arrived, in order. After Exited comes nothing more.
  virtual std::vector<EvaluatorEvent> poll() = 0;
  /// The last lines that it wrote to standard output and error, as one line of bounded length, for
  /// people: what it was about when it had to be ended. "" if it said nothing.
  virtual std::string last_words() const = 0;
  /// Ends it and everything it started, now. poll() then gives Exited.
  virtual void kill() = 0;
  /// Adds what the loop must wait for.
  virtual void add_descriptors(std::vector<pollfd>& descriptors) const = 0;
};

}  // namespace evalcar::supervise
