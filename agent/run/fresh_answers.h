// What the evaluator answered and the database does not have yet.
//
// A restart redoes what came since the last write. So what came is written at once, unless that
// takes long: then so seldom that the disk is busy with it for a small part of the time.
#pragma once

#include <optional>
#include <vector>

#include "store/base/clock.h"
#include "store/protocol/messages.h"
#include "store/state/store.h"

namespace evalcar::run {

/// Not thread-safe.
class FreshAnswers {
 public:
  /// `clock` must outlive it.
  explicit FreshAnswers(const Clock& clock) : clock_(clock), written_at_(clock.monotonic_now()) {}

  void take(protocol::Sample answer) { answers_.push_back(std::move(answer)); }
  void take(protocol::Scored sample) { samples_.push_back(std::move(sample)); }
  /// Writes what is due, or `all`. After an error it is kept, and tried again.
  Status write(state::Store& store, std::int64_t evaluation, bool all);
  /// When something is to be written; absent: there is nothing.
  std::optional<MonotonicTime> due() const;

 private:
  const Clock& clock_;
  std::vector<protocol::Sample> answers_;
  std::vector<protocol::Scored> samples_;
  MonotonicTime written_at_;
  MonotonicTime::duration pause_{};
};

}  // namespace evalcar::run
