#include "agent/request/cancel.h"

#include <string>

namespace evalcar::request {

using state::EvaluationState;

Answer cancel_evaluation(state::Store& store, std::optional<std::int64_t> run_id,
                         std::int64_t evaluation) {
  const std::string name = "evaluation " + std::to_string(evaluation);
  const auto row = store.read().evaluation(evaluation);
  if (!row.has_value()) {
    const bool none = row.error().code == ErrorCode::kNotFound;
    return {none ? Outcome::kNothing : Outcome::kFailed,
            none ? "there is no " + name : row.error().message};
  }
  if (run_id.has_value() && row->run_id != *run_id) {
    return {Outcome::kNothing, name + " is of another run"};
  }
  const std::string title = name + " (step " + std::to_string(row->step) + ", " + row->kind + ")";
  const bool measured = row->state == EvaluationState::kScored;
  if (measured || state::is_end_state(row->state)) {
    return {Outcome::kNothing, title +
                                   (measured ? " is measured already" : " has ended already: ") +
                                   (measured ? "" : std::string(state::state_name(row->state)))};
  }
  const Status ended =
      store.transition(evaluation, EvaluationState::kSkipped, std::string(kCancelled));
  if (!ended.has_value()) return {Outcome::kFailed, ended.error().message};
  return {Outcome::kDone, title + " is cancelled; evalcar retry " + std::to_string(row->step) +
                              " takes it up again"};
}

}  // namespace evalcar::request
