// How fast an evaluation gets on, and how that is told to people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "store/base/clock.h"
#include "store/protocol/messages.h"

namespace evalcar::report {

/// Where the work stands.
struct WorkDone {
  std::string stage;  ///< "loading", "evaluating", …
  std::string task;   ///< may be empty
  std::int64_t done = 0;
  std::int64_t total = 0;            ///< 0: not known
  std::optional<double> per_second;  ///< absent until something was done in this stage
  std::optional<double> seconds_left;
};

/// Watches the progress of one evaluation. The rate is the mean since its stage was first heard
/// of, so answers of an earlier attempt do not count as work. Not thread-safe.
class Pace {
 public:
  void note(const protocol::Progress& progress, MonotonicTime now);
  /// As of the last note(); absent before it.
  const std::optional<WorkDone>& work() const { return work_; }

 private:
  std::optional<WorkDone> work_;
  std::int64_t first_done_ = 0;
  MonotonicTime since_{};
};

/// "evaluating docvqa_val [####----------------] 20 % 1070/5349, 31.2/s, 2 min 17 s left"; the bar
/// only if asked for.
std::string work_text(const WorkDone& work, bool with_bar);

/// "12 s", "2 min 5 s", "3 h 4 min", "2 d 3 h": two units at most; "" for what is no time.
std::string duration_text(double seconds);

}  // namespace evalcar::report
