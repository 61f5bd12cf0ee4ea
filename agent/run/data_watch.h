// Keeps knowing whether the tasks' data are there: at the start, so that a person is told before
// the first checkpoint comes, and again, with a growing pause, while something waits for them.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/config/settings.h"
#include "agent/run/surroundings.h"
#include "agent/supervise/data_check.h"

namespace evalcar::run {

/// Not thread-safe. All references must outlive it.
class DataWatch {
 public:
  /// Asks nothing where `around` names no evaluator.
  DataWatch(const Surroundings& around, const config::Settings& settings);

  /// `needed`: something waits for data, or for a change of them. True: a new report came.
  bool step(bool needed);
  /// What was there was missing or broken: it is looked at again after the pause.
  void doubt();
  /// The next look comes at once.
  void hurry();

  /// What the last look saw; absent before the first, and where the program could not tell.
  const std::optional<supervise::DataReport>& report() const { return report_; }
  /// Rises with each look that ended.
  std::int64_t looks() const { return looks_; }
  /// The last look brought data that were not there, or others.
  bool improved() const { return improved_; }
  /// There is a report, and no task of it can be evaluated.
  bool all_missing() const;
  /// Which data are missing, for people; "" if none.
  std::string warning() const;

  std::chrono::milliseconds until_due(bool needed) const;
  void add_descriptors(std::vector<pollfd>& descriptors) const;

 private:
  void start();
  void take(const Result<supervise::DataReport>& report);
  bool due(bool needed) const;

  const Surroundings& around_;
  const config::Settings& settings_;
  std::optional<supervise::DataCheck> check_;
  std::optional<supervise::DataReport> report_;
  std::int64_t looks_ = 0;
  bool improved_ = false;
  bool doubted_ = false;
  std::string trouble_;
  std::chrono::milliseconds pause_;
  MonotonicTime next_{};
};

}  // namespace evalcar::run
