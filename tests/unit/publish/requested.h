// What a job asked for besides what is configured.
#pragma once

#include "tests/unit/state/scenario.h"

namespace evalcar::test {

inline state::Evaluation plan_requested(Scenario& s, std::int64_t step, double limit = 5) {
  const auto seen = Scenario::seen(step, "f" + std::to_string(step));
  const auto observed = must(s.store->observe_checkpoint(s.run.id, seen));
  state::NewEvaluation wanted{observed.checkpoint.id, "regular", "auto", Scenario::limited(limit)};
  wanted.settings.requested = 1;
  return must(s.store->plan_evaluation(wanted));
}

}  // namespace evalcar::test
