#include "agent/run/answers.h"

#include <spdlog/spdlog.h>

#include "agent/request/cancel.h"
#include "agent/request/prune.h"
#include "agent/request/retry.h"
#include "agent/run/backfill.h"
#include "agent/run/rows.h"

namespace evalcar::run {

request::Answer Answers::to(const request::Request& asked) {
  return std::visit([this](const auto& request) { return answer(request); }, asked);
}

request::Answer Answers::not_looked_at() const {
  return {request::Outcome::kFailed,
          parts_.run.output_dir() + " is not looked at yet, or not there"};
}

request::Answer Answers::no_run() const {
  return {request::Outcome::kNothing,
          parts_.run.output_dir() + " is not there, or has no checkpoint yet"};
}

request::Answer Answers::answer(const request::Retry& retry) {
  std::optional<std::int64_t> run;
  if (parts_.run.known()) run = parts_.run.id();
  request::Answer answer = request::retry_step(parts_.store, run, retry.step, "now");
  retry_asked_ = retry_asked_ || answer.outcome == request::Outcome::kDone;
  if (const Status leased = lease_retried(retry.step); !leased.has_value()) {
    spdlog::warn("{}", leased.error().message);  // tried once more when its turn comes
  }
  spdlog::info("evalcar retry {}: {}", retry.step, answer.text);
  return answer;
}

/// What was quarantined gave its lease back, and retention does not wait until it is measured.
Status Answers::lease_retried(std::int64_t step) {
  if (!parts_.run.known()) return {};
  state::EvaluationFilter filter{.run_id = parts_.run.id(), .step = step};
  filter.states = {state::EvaluationState::kComplete};
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, parts_.store.read().evaluations(filter));
  for (const state::Evaluation& row : rows) {
    const auto kind = checkpoint::weights_kind_from_name(row.kind);
    if (!kind.has_value() || !row.lease_path.empty()) continue;
    const auto* const seen = parts_.view.whole_in(row.checkpoint_path, {row.step, *kind});
    if (seen != nullptr) EVALCAR_RETURN_IF_ERROR(parts_.leases.take(row, *seen));
  }
  return {};
}

request::Answer Answers::answer(const request::Backfill&) {
  if (!looked_at_()) return not_looked_at();
  request::Answer answer = run::backfill(parts_.store, parts_.wanted, parts_.recorder, parts_.view,
                                         parts_.leases, parts_.run.id());
  spdlog::info("evalcar backfill: {}", answer.text);
  return answer;
}

request::Answer Answers::answer(const request::Cancel& cancel) {
  if (!parts_.run.known()) return no_run();
  const auto row = parts_.store.read().evaluation(cancel.evaluation);
  request::Answer answer =
      request::cancel_evaluation(parts_.store, parts_.run.id(), cancel.evaluation);
  spdlog::info("evalcar cancel {}: {}", cancel.evaluation, answer.text);
  if (answer.outcome != request::Outcome::kDone || !row.has_value()) return answer;
  InFlight& in_flight = parts_.in_flight;
  if (in_flight.active == row->id) in_flight.superseded.insert(row->id);  // its job ends
  const auto now = parts_.store.read().evaluation(row->id);
  if (now.has_value() && !is_partial(*now)) parts_.leases.release(*row);
  return answer;
}

request::Answer Answers::answer(const request::Pin& pin) {
  if (!looked_at_()) return not_looked_at();
  request::Answer answer = parts_.pins.set(parts_.run.id(), pin);
  spdlog::info("evalcar pin {}{}: {}", pin.step, pin.off ? " --off" : "", answer.text);
  return answer;
}

request::Answer Answers::answer(const request::Prune& prune) {
  if (!parts_.run.known()) return no_run();
  request::Answer answer = request::prune_runs(parts_.around.files, parts_.around.clock,
                                               parts_.store, parts_.run.id(), prune);
  spdlog::info("evalcar prune: {}", answer.text);
  return answer;
}

}  // namespace evalcar::run
