// Whether training is over, by what the configuration says to go by: a marker file, the trainer's
// process, the last step in trainer_state.json.
#pragma once

#include <optional>
#include <string>

#include "agent/config/settings.h"
#include "store/base/clock.h"
#include "store/base/file_system.h"

namespace evalcar::run {

/// Not thread-safe. All references must outlive it.
class TrainingEnd {
 public:
  TrainingEnd(const FileSystem& files, const Clock& clock, const config::WatchSettings& settings,
              const std::string& output_dir);

  /// At most once a second it looks. `at_last_step`: the last step's checkpoint is there.
  void step(bool at_last_step);
  /// Since when it is over; absent while it goes on, as far as is known. It stays over.
  std::optional<MonotonicTime> since() const { return since_; }
  /// Something has to be looked at that tells no descriptor.
  bool watches() const;

 private:
  std::string reason(bool at_last_step);
  /// When the process of this number started, in the kernel's ticks; "" if it is not there, or has
  /// ended and only waits for its parent; "hidden" if it is there and may not be looked at.
  std::string start_of_process() const;

  const FileSystem& files_;
  const Clock& clock_;
  const config::WatchSettings& settings_;
  std::string marker_;
  std::string process_;  ///< its start: another process may get its number
  MonotonicTime looked_at_{};
  std::optional<MonotonicTime> since_;
};

}  // namespace evalcar::run
