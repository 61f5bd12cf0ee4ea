// Whether what was written last says that it is the last step of the training
// (watch.exit_at_max_steps).
//
// A training may be extended, resumed from an earlier step, or begun again beside the folders of
// the one before. A checkpoint of the highest step that says it is the last proves nothing then: so
// not the steps are compared but when things were written. And the word of one that lay there when
// this process first looked, or that was copied there, may be that of a training which is over,
// beside one that is about to save: it counts once nothing was written for a while. Which these are
// no clock tells, the file server's may be another one than ours; what was seen does.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "agent/run/disk_view.h"
#include "agent/run/surroundings.h"
#include "agent/run/wanted.h"

namespace evalcar::run {

/// Not thread-safe. All references must outlive it.
class LastStep {
 public:
  /// `output_dir`: by which `around.first_seen` knows it.
  LastStep(const Surroundings& around, const Wanted& wanted, const DiskView& view,
           std::string output_dir);

  /// To be asked once all that is there is known; it looks once a second, and says no in between.
  /// `snapshot_ns`: when the last weights between two checkpoints were written, if any were.
  bool reached(std::int64_t run_id, std::optional<std::int64_t> snapshot_ns);
  /// Another run: what is remembered is of the last one.
  void forget() { waits_for_.reset(); }

 private:
  struct Mark {
    std::int64_t step = 0;
    std::int64_t written_ns = 0;  ///< trainer_state.json
    bool operator==(const Mark&) const = default;
  };

  const FirstSeen& first_seen(std::int64_t run_id);
  std::optional<std::int64_t> written_ns(const std::string& folder, const char* file) const;
  std::optional<Mark> mark_of_newest() const;
  bool another_is_later(const Mark& mark) const;
  bool is_written_last(const Mark& mark) const;
  void begin_to_wait(const Mark& mark, const char* why);

  const Surroundings& around_;
  const Wanted& wanted_;
  const DiskView& view_;
  std::string output_dir_;
  FirstSeenOf own_;  ///< where the surroundings keep nothing
  std::optional<Mark> waits_for_;
  MonotonicTime quiet_since_{};
  std::chrono::nanoseconds quiet_{};  ///< for how long nothing may be written
  MonotonicTime due_{};
};

}  // namespace evalcar::run
