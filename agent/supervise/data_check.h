// Asks `evalcar-evaluator check`, in a child of its own, whether the tasks' data are there: the
// agent links no reader of data sets, and storage that hangs must not hold its loop up.
#pragma once

#include <poll.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/supervise/child_process.h"
#include "store/base/clock.h"
#include "store/base/result.h"

namespace evalcar::supervise {

/// What was found of the data of one task.
struct TaskData {
  std::string error;          ///< "" if they can be read
  std::string circumstances;  ///< changes with the data; "" if they could not be opened
  bool operator==(const TaskData&) const = default;
};
/// By task.
using DataReport = std::map<std::string, TaskData>;

/// The line that the program prints; kCorruption for anything else.
Result<DataReport> parse_data_report(const std::string& output);

/// Not thread-safe. Destroying it ends the child.
class DataCheck {
 public:
  /// `command`: the program and its arguments. `clock` must outlive it; after `limit` it is given
  /// up.
  static Result<DataCheck> start(const std::vector<std::string>& command, const Clock& clock,
                                 std::chrono::milliseconds limit);
  /// The report, or why there is none (kUnavailable); absent while it runs.
  std::optional<Result<DataReport>> poll();
  void add_descriptors(std::vector<pollfd>& descriptors) const;

 private:
  DataCheck(ChildProcess child, const Clock& clock, std::chrono::milliseconds limit)
      : child_(std::move(child)), clock_(&clock), deadline_(clock.monotonic_now() + limit) {}

  ChildProcess child_;
  const Clock* clock_;
  MonotonicTime deadline_;
  std::string output_;
  bool ended_ = false;
};

}  // namespace evalcar::supervise
