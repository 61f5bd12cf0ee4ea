#include "agent/run/tally.h"

#include <algorithm>
#include <map>
#include <string>

namespace evalcar::run {

using state::EvaluationState;

Result<Tally> tally_of(const state::Reader& reader, const Wanted& wanted, std::int64_t run_id) {
  Tally tally;
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, reader.evaluations({.run_id = run_id}));
  std::map<std::string, std::int64_t> newest;  // generation of each checkpoint
  for (const state::Evaluation& row : rows) {
    newest[row.checkpoint] = std::max(newest[row.checkpoint], row.generation);
  }
  for (const state::Evaluation& row : rows) {
    ++tally.total;
    if (!wanted.matches(row) || row.generation != newest[row.checkpoint]) continue;
    if (row.state == EvaluationState::kPublished) {
      ++(row.reason.empty() ? tally.published : tally.failed);
    }
    if (row.state == EvaluationState::kScored) ++tally.unpublished;
    if (row.state == EvaluationState::kQuarantined || row.state == EvaluationState::kLost) {
      ++tally.failed;
    }
    if (!state::is_end_state(row.state)) ++tally.open;
  }
  return tally;
}

int exit_code_of(const Tally& tally) {
  if (tally.unpublished > 0) return kFailed;
  if (tally.failed > 0) return kPartly;
  return tally.total == 0 ? kNothing : kDone;
}

}  // namespace evalcar::run
