#include "store/base/call_thread.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace evalcar {
namespace {

using Time = std::chrono::steady_clock::time_point;
using std::chrono::milliseconds;

constexpr milliseconds kStopCheck{50};
/// The end of a call that was just made is worth this much, so that the thread can be joined.
constexpr milliseconds kLastPatience{200};

Error silent(const std::string& what) {
  return make_error(ErrorCode::kUnavailable, what + ": its file system does not answer");
}

}  // namespace

struct CallThread::State {
  struct Waiting {
    std::uint64_t ticket = 0;
    Call call;
  };

  explicit State(Patience given) : patience(std::move(given)), wait(patience.first) {}

  const Patience patience;
  std::mutex mutex;
  std::condition_variable wake;  ///< the thread: something to do
  std::condition_variable done;  ///< the others: a call came back
  std::deque<Waiting> calls;
  std::uint64_t tickets = 0;
  std::uint64_t finished = 0;  ///< the ticket of the last call that came back
  bool started = false;        ///< there is a thread
  bool running = false;
  bool closing = false;
  bool given_up = false;  ///< the running call
  Time begun_at{};        ///< of the running call
  Time fails_until{};
  milliseconds wait;  ///< for the next call

  bool fails(Time now) const { return given_up || now < fails_until; }
  /// Under the lock, after a call came back.
  void note_return(Time now) {
    const auto took = std::chrono::ceil<milliseconds>(now - begun_at);
    if (std::exchange(given_up, false)) {
      wait = std::clamp(2 * took, wait, std::max(wait, patience.longest));
      fails_until = now + patience.rest;
    } else if (took < patience.first) {
      wait = std::max(patience.first, wait * 9 / 10);
    }
  }
};

CallThread::CallThread(Patience patience) : state_(std::make_shared<State>(std::move(patience))) {}

CallThread::~CallThread() {
  std::unique_lock lock(state_->mutex);
  state_->closing = true;
  state_->wake.notify_all();
  if (state_->given_up) return;
  state_->done.wait_until(lock, std::chrono::steady_clock::now() + kLastPatience,
                          [this] { return !state_->running && state_->calls.empty(); });
}

/// Under the lock. It is never joined: it may hang for as long as the disk does. What it needs it
/// shares. False: the system gives no thread.
bool CallThread::start_thread() {
  if (state_->started) return true;
  // Signals are for the other threads; one that met a call here would wait for it.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([state = state_] { serve(state); }).detach();
    state_->started = true;
  } catch (const std::system_error&) {
    state_->started = false;  // a limit on threads
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return state_->started;
}

void CallThread::serve(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (true) {
    state->wake.wait(lock, [&] { return state->closing || !state->calls.empty(); });
    if (state->calls.empty()) return;
    State::Waiting next = std::move(state->calls.front());
    state->calls.pop_front();
    state->running = true;
    state->begun_at = std::chrono::steady_clock::now();
    lock.unlock();
    next.call();
    next.call = nullptr;  // what nobody waits for any more is dropped here, not by those who asked
    lock.lock();
    state->running = false;
    state->finished = next.ticket;
    state->note_return(std::chrono::steady_clock::now());
    state->done.notify_all();
  }
}

Status CallThread::run(const std::string& what, Call call) {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  const Time asked_at = std::chrono::steady_clock::now();
  if (state.fails(asked_at)) return silent(what);
  if (!start_thread()) {  // better a call that may hang than none
    lock.unlock();
    call();
    return {};
  }
  const std::uint64_t ticket = ++state.tickets;
  state.calls.push_back({ticket, std::move(call)});
  state.wake.notify_one();
  const auto back = [&] { return state.finished >= ticket; };
  const Time deadline = asked_at + state.wait;
  for (Time now = asked_at; now < deadline; now = std::chrono::steady_clock::now()) {
    if (state.done.wait_until(lock, std::min(deadline, now + kStopCheck), back)) return {};
    if (state.patience.stopping && state.patience.stopping()) break;
  }
  if (back()) return {};
  // Not begun: it never will be.
  std::erase_if(state.calls, [ticket](const State::Waiting& w) { return w.ticket == ticket; });
  state.given_up = state.running;
  // Nobody may conclude anything of this turn, though no call hangs.
  if (!state.running) state.fails_until = std::chrono::steady_clock::now() + state.patience.rest;
  return silent(what);
}

void CallThread::run_later(Call call) {
  {
    const std::scoped_lock lock(state_->mutex);
    if (start_thread()) {
      state_->calls.push_back({++state_->tickets, std::move(call)});
      state_->wake.notify_one();
      return;
    }
  }
  call();
}

Status CallThread::answers(const std::string& what) const {
  const std::scoped_lock lock(state_->mutex);
  if (state_->fails(std::chrono::steady_clock::now())) return silent(what);
  return {};
}

}  // namespace evalcar
