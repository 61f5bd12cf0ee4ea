#include "agent/request/retry.h"

#include <algorithm>
#include <vector>

#include "agent/request/newest_runs.h"

namespace evalcar::request {
namespace {

using state::EvaluationState;

/// The reason of a published one names the tasks that failed.
bool may_be_tried_again(const state::Evaluation& row) {
  return row.state == EvaluationState::kFailed || row.state == EvaluationState::kQuarantined ||
         row.state == EvaluationState::kSkipped || row.state == EvaluationState::kLost ||
         (row.state == EvaluationState::kPublished && !row.reason.empty());
}

/// It was put back for a fault around it, and waits for that to be repaired.
bool waits_for_repair(const state::Evaluation& row) {
  return row.state == EvaluationState::kLeased && !row.reason.empty();
}

/// What was published in part stays so where there is nothing left to measure. Its lease is
/// remembered for as long as it is there.
Result<bool> is_gone(const state::Reader& rows, const state::Evaluation& row) {
  if (row.state != EvaluationState::kPublished || !row.lease_path.empty()) return false;
  EVALCAR_ASSIGN_OR_RETURN(const state::Checkpoint checkpoint, rows.checkpoint(row.checkpoint_id));
  return !checkpoint.gone_at.empty();
}

/// The evaluations of the newest generation of this step's checkpoint.
Result<std::vector<state::Evaluation>> rows_of_step(const state::Reader& rows, std::int64_t run_id,
                                                    std::int64_t step) {
  EVALCAR_ASSIGN_OR_RETURN(auto found, rows.evaluations({.run_id = run_id, .step = step}));
  std::int64_t newest = 0;
  for (const state::Evaluation& row : found) newest = std::max(newest, row.generation);
  std::erase_if(found, [newest](const state::Evaluation& row) { return row.generation != newest; });
  return found;
}

Result<Answer> retry(state::Store& store, const std::vector<std::int64_t>& runs, std::int64_t step,
                     const char* when) {
  std::int64_t count = 0;
  std::string others;
  for (const std::int64_t run : runs) {
    EVALCAR_ASSIGN_OR_RETURN(const auto rows, rows_of_step(store.read(), run, step));
    for (const state::Evaluation& row : rows) {
      EVALCAR_ASSIGN_OR_RETURN(const bool gone, is_gone(store.read(), row));
      if (waits_for_repair(row)) {  // the agent ends its pause
        ++count;
      } else if (may_be_tried_again(row) && !gone) {
        EVALCAR_RETURN_IF_ERROR(store.ask_again(row.id, "retry"));
        ++count;
      } else {
        others.append(others.empty() ? "" : ", ").append(row.kind).append(" is ");
        others.append(state::state_name(row.state));
        if (may_be_tried_again(row))
          others.append(" in part, and its checkpoint and its lease are gone");
      }
    }
  }
  const std::string of_step = " of step " + std::to_string(step);
  if (count > 0) {
    return Answer{Outcome::kDone, std::to_string(count) +
                                      (count == 1 ? " evaluation" : " evaluations") + of_step +
                                      (count == 1 ? " is" : " are") + " tried again " + when};
  }
  if (others.empty()) return Answer{Outcome::kNothing, "there is no evaluation" + of_step};
  return Answer{Outcome::kNothing, "nothing" + of_step + " failed: " + others};
}

}  // namespace

Answer retry_step(state::Store& store, std::optional<std::int64_t> run_id, std::int64_t step,
                  const char* when) {
  std::vector<std::int64_t> runs;
  if (run_id.has_value()) {
    runs.push_back(*run_id);
  } else {
    auto newest = newest_runs(store.read());
    if (!newest.has_value()) return {Outcome::kFailed, newest.error().message};
    runs = std::move(newest).value();
  }
  auto answer = retry(store, runs, step, when);
  if (!answer.has_value()) return {Outcome::kFailed, answer.error().message};
  return std::move(answer).value();
}

}  // namespace evalcar::request
