// When an agent has nothing more to do, or can do nothing any more, and with which exit code it
// ends.
#pragma once

#include <cstdint>
#include <optional>

#include "agent/run/complaints.h"
#include "agent/run/data_watch.h"
#include "agent/run/directories.h"
#include "agent/supervise/supervisor.h"

namespace evalcar::run {

struct AgentOptions {
  bool once = false;   ///< stop when everything that is there is done
  bool serve = false;  ///< directories are opened as jobs ask for them, and it never ends by itself
};

/// What an end that leaves work undone says in the log.
inline constexpr const char* kLeftWaiting =
    "the evaluations that are left wait with their leases; start again when this is repaired";

/// Not thread-safe.
class AgentEnd {
 public:
  /// All must outlive it.
  AgentEnd(const Surroundings& around, const config::Settings& settings, AgentOptions options,
           const Directories& directories, const supervise::Supervisor& supervisor,
           const DataWatch& data, Complaints& complaints);

  struct Turn {
    std::optional<int> exit_code;  ///< set: it ends, and why is in the log if it is no good end
    bool one_waits = false;        ///< the last checkpoint was taken up, and waits to be measured
  };
  /// The last of a turn. `works`: an evaluation runs.
  Turn step(bool works);
  /// Something was measured.
  void note_measured();
  /// Nothing was left to complete (Directories::any_in_part) at this look at the data
  /// (DataWatch::looks).
  void note_completed(std::int64_t look) { completed_at_ = look; }
  /// How the evaluations of all directories ended.
  int code_of_rows() const;

 private:
  bool may_end(const OutputDirectory& directory) const;
  bool all_may_end() const;
  Turn look_at_rows();
  bool is_stuck() const;
  bool is_hopeless(bool works);

  const Surroundings& around_;
  const config::Settings& settings_;
  AgentOptions options_;
  const Directories& directories_;
  const supervise::Supervisor& supervisor_;
  const DataWatch& data_;
  Complaints& complaints_;
  MonotonicTime started_at_{};
  MonotonicTime got_on_at_{};       ///< something was measured, or came, or training went on
  MonotonicTime looked_at_{};       ///< for that, last
  std::int64_t completed_at_ = -1;  ///< the look at which nothing was left to complete
};

}  // namespace evalcar::run
