// What one render may use, and its error. Templates come from strangers: every step, every byte
// that is made and every level of nesting is counted.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "evaluator/text/jinja_value.h"

namespace evalcar::text::jinja {

/// One render's limits and first error. Not thread-safe. After a failure every operation returns at
/// once; callers look at failed() where they loop.
class Runtime {
 public:
  static constexpr std::size_t kMaxSteps = 10'000'000;      // nodes, items and 16-byte blocks
  static constexpr std::size_t kMaxOutputBytes = 16 << 20;  // also of any one string
  static constexpr int kMaxDepth = 250;                     // of evaluation
  static constexpr int kMaxValueDepth = 100;                // of nested lists and dicts

  Runtime() = default;
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  ~Runtime() {
    for (const auto& object : objects_) object->clear();
  }

  bool failed() const { return error_.has_value(); }
  const std::string& error() const { return *error_; }
  /// Keeps the first error, with the line that is being evaluated. Returns undefined.
  Value fail(const std::string& message) {
    if (!error_) error_ = "line " + std::to_string(line_) + ": " + message;
    return {};
  }
  Value type_error(const std::string& message) { return fail("TypeError: " + message); }

  /// Counts work; false if there has been too much of it.
  bool charge(std::size_t steps) {
    steps_ += steps + 1;
    if (steps_ > kMaxSteps) fail("the template takes more than the allowed number of steps");
    return !failed();
  }
  /// The same for making or going through `size` bytes; refuses strings that are too long.
  bool charge_bytes(std::size_t size) {
    if (size > kMaxOutputBytes)
      fail("the template makes a text of " + std::to_string(size) + " bytes");
    return charge(size / 16);
  }
  bool enter() {
    if (++depth_ > kMaxDepth) fail("the template nests too deep");
    return !failed();
  }
  void leave() { --depth_; }

  int line() const { return line_; }
  void set_line(int line) { line_ = line; }

  /// Keeps an object until the end of the render, when it is cleared.
  template <typename T>
  std::shared_ptr<T> keep(std::shared_ptr<T> object) {
    objects_.push_back(object);
    return object;
  }

 private:
  std::optional<std::string> error_;
  std::size_t steps_ = 0;
  int depth_ = 0;
  int line_ = 1;
  std::vector<std::shared_ptr<Object>> objects_;
};

/// enter() now, leave() at the end of the scope.
class DepthGuard {
 public:
  explicit DepthGuard(Runtime& runtime) : runtime_(runtime), ok_(runtime.enter()) {}
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;
  ~DepthGuard() { runtime_.leave(); }
  explicit operator bool() const { return ok_; }

 private:
  Runtime& runtime_;
  bool ok_;
};

}  // namespace evalcar::text::jinja
