#include "agent/run/backfill.h"

#include <string>
#include <vector>

#include "agent/run/rows.h"

namespace evalcar::run {
namespace {

using request::Answer;
using request::Outcome;
using state::EvaluationState;

/// Each is a transaction and a lease, and the agent does nothing else meanwhile.
constexpr std::size_t kMostAtOnce = 100;

bool was_passed_over(const state::Evaluation& row) {
  return row.settings.requested == 0 &&
         ((row.state == EvaluationState::kSkipped && row.reason.starts_with(kNotWanted)) ||
          (row.state == EvaluationState::kSuperseded && row.reason == kNewerCame));
}

struct Found {
  state::Evaluation row;
  const watch::Sighting* seen = nullptr;
};

Result<std::vector<Found>> passed_over(const state::Reader& rows, const Wanted& wanted,
                                       const Recorder& recorder, const DiskView& view,
                                       std::int64_t run_id) {
  std::vector<Found> found;
  state::EvaluationFilter filter;
  filter.run_id = run_id;
  filter.states = {EvaluationState::kSkipped, EvaluationState::kSuperseded};
  EVALCAR_RETURN_IF_ERROR(rows.for_each_evaluation(filter, [&](const state::Evaluation& row) {
    const auto kind = checkpoint::weights_kind_from_name(row.kind);
    if (found.size() > kMostAtOnce || !kind.has_value() || !was_passed_over(row)) return;
    const auto seen = view.complete.find({row.step, *kind});
    const bool is_there = seen != view.complete.end() && view.present.contains(row.step);
    if (!is_there || row.checkpoint_id != recorder.checkpoint_of(row.step)) return;
    if (wanted.matches(row)) found.push_back({row, &seen->second});
  }));
  return found;
}

Result<Answer> ask_for(state::Store& store, Leases& leases, const std::vector<Found>& found) {
  std::size_t count = 0;
  for (const Found& one : found) {
    if (count == kMostAtOnce) break;
    EVALCAR_RETURN_IF_ERROR(store.ask_again(one.row.id, "backfill"));
    EVALCAR_ASSIGN_OR_RETURN(const state::Evaluation row, store.read().evaluation(one.row.id));
    EVALCAR_RETURN_IF_ERROR(leases.take(row, *one.seen));
    ++count;
  }
  if (count == 0) {
    return Answer{Outcome::kNothing, "nothing was passed over whose weights are still there"};
  }
  return Answer{Outcome::kDone,
                std::to_string(count) +
                    (count == 1 ? " evaluation that was" : " evaluations that were") +
                    " passed over " + (count == 1 ? "waits" : "wait") + " now",
                found.size() > count};
}

}  // namespace

Answer backfill(state::Store& store, const Wanted& wanted, const Recorder& recorder,
                const DiskView& view, Leases& leases, std::int64_t run_id) {
  const auto found = passed_over(store.read(), wanted, recorder, view, run_id);
  if (!found.has_value()) return {Outcome::kFailed, found.error().message};
  auto answer = ask_for(store, leases, *found);
  if (!answer.has_value()) return {Outcome::kFailed, answer.error().message};
  return std::move(answer).value();
}

}  // namespace evalcar::run
