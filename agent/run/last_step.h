// Whether what was written last says that it is the last step of the training
// (watch.exit_at_max_steps).
//
// A training may be extended, resumed from an earlier step, or begun again beside the folders of
// the one before. A checkpoint of the highest step that says it is the last proves nothing then: so
// not the steps are compared but when things were written. And the word of one that lay there
// before this process may be that of a training which is over, beside one that is about to save: it
// counts once nothing was written for a while.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "agent/run/disk_view.h"
#include "agent/run/wanted.h"
#include "store/base/clock.h"
#include "store/base/file_system.h"

namespace evalcar::run {

/// Not thread-safe. All references must outlive it.
class LastStep {
 public:
  /// `started_ns`: when this process began, of the wall clock; absent: now.
  LastStep(const FileSystem& files, const Clock& clock, const Wanted& wanted, const DiskView& view,
           std::optional<std::int64_t> started_ns = std::nullopt);

  /// To be asked once all that is there is known; it looks once a second, and says no in between.
  /// `snapshot_ns`: when the last weights between two checkpoints were written, if any were.
  bool reached(std::optional<std::int64_t> snapshot_ns);
  /// Another run: what is remembered is of the last one.
  void forget() { waits_for_.reset(); }

 private:
  struct Mark {
    std::int64_t step = 0;
    std::int64_t written_ns = 0;  ///< trainer_state.json
    bool operator==(const Mark&) const = default;
  };

  std::optional<Mark> mark_of_newest() const;
  bool another_is_later(const Mark& mark) const;
  void begin_to_wait(const Mark& mark);

  const FileSystem& files_;
  const Clock& clock_;
  const Wanted& wanted_;
  const DiskView& view_;
  std::int64_t started_ns_;  ///< of the wall clock
  std::optional<Mark> waits_for_;
  MonotonicTime quiet_since_{};
  std::chrono::nanoseconds quiet_{};  ///< for how long nothing may be written
  MonotonicTime due_{};
};

}  // namespace evalcar::run
