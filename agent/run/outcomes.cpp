#include "agent/run/outcomes.h"

#include <spdlog/spdlog.h>

#include <string>

#include "agent/run/retry_pause.h"
#include "agent/run/rows.h"

namespace evalcar::run {
namespace {

using state::EvaluationState;

constexpr char kRemovedInPlace[] = "removed while it was read in place";

}  // namespace

Status Outcomes::fail(const state::Evaluation& row, const state::AttemptFailure& failure,
                      bool retryable) {
  if (leases_.vanished_in_place(row)) {
    return end_evaluation(store_, row.id, EvaluationState::kLost, kRemovedInPlace);
  }
  const std::int64_t failures = row.failures + 1;
  const bool quarantine = !retryable || failures >= limits_.attempts;
  const std::string next_try = format_utc(clock_.wall_now() + pause_after(limits_, failures));
  EVALCAR_RETURN_IF_ERROR(store_.fail_attempt(row.id, failure, next_try, quarantine));
  log::error(fmt::format("{}: {} (at {}): {}", title(row),
                         quarantine ? "failed, quarantined" : "failed, will be tried again",
                         failure.stage, failure.message),
             event_of(quarantine ? "quarantined" : "failed", row)
                 .with("attempt", row.attempts + 1)
                 .with("error", failure.kind)
                 .with("stage", failure.stage));
  if (!quarantine) return {};
  completion_.look_again();
  EVALCAR_ASSIGN_OR_RETURN(const state::Evaluation ended, store_.read().evaluation(row.id));
  if (!is_partial(ended)) leases_.release(row);  // else a person may still ask for the rest
  return {};
}

Result<bool> Outcomes::put_back(const state::Evaluation& row,
                                const state::AttemptFailure& failure) {
  completion_.look_again();
  if (leases_.vanished_in_place(row)) {
    EVALCAR_RETURN_IF_ERROR(
        end_evaluation(store_, row.id, EvaluationState::kLost, kRemovedInPlace));
    return false;
  }
  log::error(fmt::format("{}: cannot be evaluated now (at {}): {}", title(row), failure.stage,
                         failure.message),
             event_of("put_back", row).with("error", failure.kind).with("stage", failure.stage));
  EVALCAR_RETURN_IF_ERROR(store_.put_back(row.id, failure));
  EVALCAR_ASSIGN_OR_RETURN(const state::Evaluation now, store_.read().evaluation(row.id));
  return is_open(now.state);
}

Result<bool> Outcomes::supersede(const std::vector<std::int64_t>& evaluations, Slice& slice) {
  for (const std::int64_t id : evaluations) {
    if (slice.was_cut()) return false;
    EVALCAR_ASSIGN_OR_RETURN(const state::Evaluation row, store_.read().evaluation(id));
    EVALCAR_RETURN_IF_ERROR(
        end_evaluation(store_, id, EvaluationState::kSuperseded, std::string(kNewerCame)));
    leases_.release(row);
    (void)slice.over();
  }
  return true;
}

void Outcomes::interrupt(InFlight& in_flight, const std::string& why) {
  if (!in_flight.active.has_value()) return;
  const auto row = store_.read().evaluation(*in_flight.active);
  if (row.has_value() &&
      (row->state == EvaluationState::kLoading || row->state == EvaluationState::kEvaluating)) {
    const Status back = store_.transition(row->id, EvaluationState::kLeased, "interrupted: " + why);
    if (!back.has_value()) spdlog::warn("{}", back.error().message);
  }
  in_flight.superseded.insert(*in_flight.active);
}

}  // namespace evalcar::run
