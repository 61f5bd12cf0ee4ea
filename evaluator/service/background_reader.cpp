#include "evaluator/service/background_reader.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <exception>
#include <iostream>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "store/base/io_priority.h"
#include "store/base/text.h"

namespace evalcar::service {
namespace {

constexpr std::size_t kMostTold = 1000;

// Of the calling thread, and of those that it starts. What is refused stays as it was.
void take_lowest_priority() {
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), 19);
  const sched_param none{};
  ::sched_setscheduler(0, SCHED_IDLE, &none);
  set_io_priority({IoPriority::Class::kIdle});
}

}  // namespace

struct BackgroundReader::State {
  explicit State(Read given) : read(std::move(given)) {}

  void serve() {
    take_lowest_priority();
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return closing || wanted.has_value(); });
      if (closing) break;
      const protocol::Prefetch next = *std::exchange(wanted, std::nullopt);
      stop = std::stop_source();
      const std::stop_token token = stop.get_token();
      lock.unlock();
      tell(next, read_caught(next, token));
      lock.lock();
    }
    ended = true;
    changed.notify_all();
  }

  Status read_caught(const protocol::Prefetch& next, const std::stop_token& token) const {
    try {
      return read(next, token);
    } catch (const std::exception& error) {  // a bad_alloc, or of a library
      return make_error(ErrorCode::kInternal, error.what());
    }
  }

  // On the one thread.
  void tell(const protocol::Prefetch& next, const Status& done) {
    if (done.has_value()) {
      std::cerr << "read ahead: " + printable(next.dir) + '\n';
      return;
    }
    const Error& error = done.error();
    if (error.code == ErrorCode::kCancelled || told.size() >= kMostTold) return;
    // Where it is for want of memory it will be so for every checkpoint.
    const bool fits = error.message.find("no room") == std::string::npos;
    if (!told.insert(fits ? next.dir + next.weights : "").second) return;
    const std::string line =
        "warning: not read ahead: " + printable(next.dir) + ": " + printable(error.message) + '\n';
    std::cerr << line;
  }

  const Read read;
  std::mutex mutex;  // guards what follows, but for `told`
  std::condition_variable changed;
  std::optional<protocol::Prefetch> wanted;
  std::stop_source stop;  // of what is being read
  bool closing = false;
  bool ended = true;  // there is no thread
  std::set<std::string> told;
  std::thread thread;
};

BackgroundReader::BackgroundReader(Read read) : state_(std::make_unique<State>(std::move(read))) {}

BackgroundReader::~BackgroundReader() {
  (void)end(std::chrono::milliseconds(0));
  if (state_->thread.joinable()) state_->thread.join();
}

void BackgroundReader::read(protocol::Prefetch wanted) {
  const std::scoped_lock lock(state_->mutex);
  if (state_->closing) return;
  state_->stop.request_stop();
  state_->wanted = std::move(wanted);
  state_->changed.notify_all();
  if (!state_->ended) return;
  // Signals are for the thread that works: one that met a read here would wait for it.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    state_->thread = std::thread([state = state_.get()] { state->serve(); });
    state_->ended = false;
  } catch (const std::system_error&) {  // a limit on threads: nothing is read ahead
    state_->wanted.reset();
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void BackgroundReader::stop() {
  const std::scoped_lock lock(state_->mutex);
  state_->wanted.reset();
  state_->stop.request_stop();
}

bool BackgroundReader::end(std::chrono::milliseconds patience) {
  stop();
  std::unique_lock lock(state_->mutex);
  state_->closing = true;
  state_->changed.notify_all();
  return state_->changed.wait_for(lock, patience, [this] { return state_->ended; });
}

}  // namespace evalcar::service
