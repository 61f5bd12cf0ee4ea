// Calls that may never come back, made by a thread that can be given up.
//
// A call on a mount whose server is gone blocks for as long as the server likes, and no signal but
// a fatal one ends it. So another thread makes it, and whoever asks waits a bounded time. A call
// that was given up keeps that thread until it comes back; meanwhile every other one fails at once,
// and no second thread is started: nothing piles up.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "store/base/result.h"

namespace evalcar {

/// Thread-safe. The thread is started by the first call.
class CallThread {
 public:
  /// Owns all that it touches: it may run on after everybody forgot it.
  using Call = std::function<void()>;

  struct Patience {
    /// A call is given up after this.
    std::chrono::milliseconds first{2'000};
    /// What came back after it was given up only was slow: the next ones are waited for longer, up
    /// to this.
    std::chrono::milliseconds longest{15'000};
    /// After a call that was given up came back, all fail for so long yet: whoever draws
    /// conclusions at the end of a turn still sees that calls of this turn were given up.
    std::chrono::milliseconds rest{1'000};
    /// True: the program ends, nothing is waited for any more. May be null.
    std::function<bool()> stopping = {};
  };

  explicit CallThread(Patience patience);
  /// Waits for no call that hangs.
  ~CallThread();
  CallThread(const CallThread&) = delete;
  CallThread& operator=(const CallThread&) = delete;

  /// Makes the call and waits for it. kUnavailable ("<what>: …"): it was given up; or it was never
  /// made, since one before it was given up.
  Status run(const std::string& what, Call call);
  /// Makes the call when the thread can, which may be never: what needs no answer, as closing.
  void run_later(Call call);
  /// kUnavailable: calls are given up now.
  Status answers(const std::string& what) const;

 private:
  struct State;
  static void serve(const std::shared_ptr<State>& state);
  bool start_thread();

  std::shared_ptr<State> state_;
};

}  // namespace evalcar
