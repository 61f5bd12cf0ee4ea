// Threads beside the caller's own, as many as the system gives.
#pragma once

#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace evalcar {

/// Up to `count` threads, each of which calls `work` once; fewer, or none, where the system gives
/// no more (a limit on processes, as containers and batch systems set): whoever uses them has to be
/// able to do all the work alone. The destructor waits for them.
class HelperThreads {
 public:
  HelperThreads(std::size_t count, const std::function<void()>& work);

  std::size_t size() const { return threads_.size(); }

 private:
  std::vector<std::jthread> threads_;
};

}  // namespace evalcar
