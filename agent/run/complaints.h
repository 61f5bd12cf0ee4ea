// What cannot be done now, in the log: the same once a minute, or a full disk would fill another
// one with it.
#pragma once

#include <string>

#include "store/base/clock.h"
#include "store/base/result.h"

namespace evalcar::run {

/// Not thread-safe.
class Complaints {
 public:
  /// `clock` must outlive it.
  explicit Complaints(const Clock& clock) : clock_(clock) {}

  /// Says "`where`: its message" unless `status` is good, or that was said a moment ago.
  void take(const std::string& where, const Status& status);

 private:
  const Clock& clock_;
  std::string last_;
  MonotonicTime said_at_{};
};

}  // namespace evalcar::run
