// A lock that owns its data: the value can be reached only while the lock is held.
#pragma once

#include <condition_variable>
#include <mutex>
#include <utility>

namespace evalcar {

/// Guarded<T> g; g.with([](T& value) { … }): runs the function under the lock and returns what it
/// returns. Do not keep a reference to the value past the call.
template <typename T>
class Guarded {
 public:
  template <typename... Args>
  explicit Guarded(Args&&... args) : value_(std::forward<Args>(args)...) {}

  template <typename F>
  decltype(auto) with(F&& function) {
    const std::scoped_lock lock(mutex_);
    return std::forward<F>(function)(value_);
  }
  template <typename F>
  decltype(auto) with(F&& function) const {
    const std::scoped_lock lock(mutex_);
    return std::forward<F>(function)(value_);
  }

 private:
  mutable std::mutex mutex_;
  T value_;
};

}  // namespace evalcar
