#include "agent/run/waiting_list.h"

#include <algorithm>
#include <chrono>

#include "agent/run/obstacles.h"
#include "agent/run/retry_pause.h"
#include "agent/run/rows.h"

namespace evalcar::run {

using state::EvaluationState;

void WaitingList::rest_without_data(const state::Evaluation& row) {
  const auto pause =
      std::min<std::chrono::milliseconds>(kLongestObstacle, pause_after(limits_, row.attempts + 1));
  rest(row.id, clock_.monotonic_now() + pause);
  without_data_.insert(row.id);
}

Result<WaitingList::Look> WaitingList::look(std::int64_t run_id) {
  Look look;
  without_data_count_ = 0;
  EVALCAR_RETURN_IF_ERROR(refresh(run_id));
  for (const auto& [id, row] : kept_) add(row, look);
  count_ = look.candidates.size();
  return look;
}

/// Beside a backlog of thousands few rows change between two looks, and reading all of them was
/// most of the agent's work.
Status WaitingList::refresh(std::int64_t run_id) {
  const bool is_known = run_id_ == run_id;
  run_id_.reset();  // until this has ended well
  EVALCAR_ASSIGN_OR_RETURN(const auto changed, rows_.changed_evaluations());
  state::EvaluationFilter filter{.run_id = run_id, .states = kWaitingStates};
  if (is_known && changed.has_value()) {
    for (const std::int64_t id : *changed) kept_.erase(id);
    filter.ids.emplace(changed->begin(), changed->end());
  } else {
    kept_.clear();
  }
  if (!filter.ids.has_value() || !filter.ids->empty()) {
    EVALCAR_ASSIGN_OR_RETURN(const auto written, rows_.written_at(filter));
    const auto take = [this, &written](const state::Standing& row) {
      const auto known = written.find(row.id);
      keep(row, known == written.end() ? 0 : known->second);
    };
    EVALCAR_RETURN_IF_ERROR(rows_.for_each_standing(filter, take));
  }
  run_id_ = run_id;
  return {};
}

void WaitingList::keep(const state::Standing& row, std::int64_t written_ns) {
  Row& kept = kept_[row.id];
  kept.candidate = {.id = row.id,
                    .step = row.step,
                    .kind = row.kind,
                    .series = series_of(row),
                    .tried = row.attempts > 0,
                    .asked = row.asked,
                    .written_ns = written_ns,
                    .failed = row.failures > 0};
  kept.requested = row.settings.requested != 0;
  kept.wanted = wanted_.matches(row);
  kept.state = row.state;
  kept.failures = row.failures;
  kept.next_try_at = row.next_try_at;
}

void WaitingList::add(const Row& row, Look& look) {
  const std::int64_t id = row.candidate.id;
  if (row.requested && !requested_.is_open(id)) return;
  if (!row.requested && !row.wanted) {
    look.unwanted = true;
    return;
  }
  if (row.state == EvaluationState::kFound) return;
  const auto rest = resting_.find(id);
  const bool rests = rest != resting_.end() && clock_.monotonic_now() < rest->second;
  if (rests && without_data_.contains(id)) ++without_data_count_;
  look.candidates.push_back(row.candidate);
  look.candidates.back().ready =
      !rests && (row.state != EvaluationState::kFailed || try_is_due(row));
}

/// The row remembers a time of the wall clock, since it outlives the process. One that is further
/// away than any pause shows that the clock was set back: it is not waited for.
bool WaitingList::try_is_due(const Row& row) const {
  const WallTime now = clock_.wall_now();
  return row.next_try_at <= format_utc(now) ||
         row.next_try_at > format_utc(now + pause_after(limits_, row.failures));
}

}  // namespace evalcar::run
