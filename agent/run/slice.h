// How long one turn works at one thing. A turn ends before signals and requests are answered, so
// what may be thousands of rows or files is done in slices, a turn at a time.
#pragma once

#include <chrono>

#include "agent/run/surroundings.h"

namespace evalcar::run {

/// Begins where it is made. `around` must outlive it.
class Slice {
 public:
  static constexpr std::chrono::milliseconds kLongest{250};
  explicit Slice(const Surroundings& around)
      : around_(around), until_(around.clock.monotonic_now() + kLongest) {}

  /// Asked behind each piece of work, so that every slice gets on: the rest is for the next turn.
  /// Once it is over it stays so.
  bool over() {
    over_ = over_stopping() || around_.clock.monotonic_now() >= until_;
    return over_;
  }
  /// The same for a piece that should not be cut for its length.
  bool over_stopping() {
    over_ = over_ || (around_.stopping && around_.stopping());
    return over_;
  }
  /// A look at everything came before the pieces that follow, however long it took: their time
  /// counts from now, or each turn would get no further than one of them. Not where it was cut.
  void begin_work() { until_ = around_.clock.monotonic_now() + kLongest; }
  /// The answer of before: whether something may be left.
  bool was_cut() const { return over_; }

 private:
  const Surroundings& around_;
  MonotonicTime until_;
  bool over_ = false;
};

}  // namespace evalcar::run
