// A thread for work that would hold the server's own thread up: questions to databases.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace evalcar::http {

/// Thread-safe. Does one thing after the other; its end waits for the one that runs, and drops the
/// others.
class Worker {
 public:
  /// `most`: as many may wait.
  explicit Worker(std::size_t most);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  /// False: too many wait.
  bool take(std::function<void()> work);

 private:
  void run(const std::stop_token& stop);

  const std::size_t most_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::function<void()>> waiting_;  ///< guarded by mutex_
  std::jthread thread_;                        ///< last: it uses all of the above
};

}  // namespace evalcar::http
