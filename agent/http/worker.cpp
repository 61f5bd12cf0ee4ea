#include "agent/http/worker.h"

#include <utility>

namespace evalcar::http {

Worker::Worker(std::size_t most) : most_(most) {
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

Worker::~Worker() {
  thread_.request_stop();
  thread_.join();  // before the members that it uses go
}

bool Worker::take(std::function<void()> work) {
  const std::scoped_lock lock(mutex_);
  if (waiting_.size() >= most_) return false;
  waiting_.push_back(std::move(work));
  changed_.notify_all();
  return true;
}

void Worker::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [this] { return !waiting_.empty(); })) return;
      work = std::move(waiting_.front());
      waiting_.pop_front();
    }
    work();
  }
}

}  // namespace evalcar::http
