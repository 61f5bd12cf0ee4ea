#include "agent/run/waiting_list.h"

#include <algorithm>
#include <chrono>

#include "agent/run/obstacles.h"
#include "agent/run/retry_pause.h"
#include "agent/run/rows.h"

namespace evalcar::run {

using state::EvaluationState;

void WaitingList::add(const state::Standing& row, Look& look) {
  const bool requested = row.settings.requested != 0;
  if (requested && !requested_.is_open(row.id)) return;
  if (!requested && !wanted_.matches(row)) {
    look.unwanted = true;
    return;
  }
  if (row.state == EvaluationState::kFound) return;
  const auto rest = resting_.find(row.id);
  const bool rests = rest != resting_.end() && clock_.monotonic_now() < rest->second;
  if (rests && without_data_.contains(row.id)) ++without_data_count_;
  const bool ready = !rests && (row.state != EvaluationState::kFailed || try_is_due(row));
  look.candidates.push_back(
      {row.id, row.step, row.kind, ready, series_of(row), row.attempts > 0, row.asked});
}

void WaitingList::rest_without_data(const state::Evaluation& row) {
  const auto pause =
      std::min<std::chrono::milliseconds>(kLongestObstacle, pause_after(limits_, row.attempts + 1));
  rest(row.id, clock_.monotonic_now() + pause);
  without_data_.insert(row.id);
}

Result<WaitingList::Look> WaitingList::look(std::int64_t run_id, bool all_wanted) {
  Look look;
  without_data_count_ = 0;
  const std::int64_t changes = rows_.changes();
  if (nothing_waits_at_ == changes) return look;
  EVALCAR_RETURN_IF_ERROR(
      rows_.for_each_standing({.run_id = run_id, .states = kWaitingStates},
                              [this, &look](const state::Standing& row) { add(row, look); }));
  count_ = look.candidates.size();
  // So that an idle agent does not read all rows at each poll.
  if (look.candidates.empty() && all_wanted && !look.unwanted) nothing_waits_at_ = changes;
  return look;
}

/// The row remembers a time of the wall clock, since it outlives the process. One that is further
/// away than any pause shows that the clock was set back: it is not waited for.
bool WaitingList::try_is_due(const state::Standing& row) const {
  const WallTime now = clock_.wall_now();
  return row.next_try_at <= format_utc(now) ||
         row.next_try_at > format_utc(now + pause_after(limits_, row.failures));
}

}  // namespace evalcar::run
