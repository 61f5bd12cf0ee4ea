// The plan of a whole run: what is generated and what is scored, a plan of its own each, over all
// requests, those that an interrupted attempt has answered among them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "evaluator/engine/engine.h"
#include "evaluator/engine/planner.h"
#include "evaluator/engine/requests.h"
#include "store/base/result.h"

namespace evalcar::engine {

/// Groups hold indices into the requests of the run.
struct RunPlan {
  std::vector<Pack> generating;
  std::vector<Pack> scoring;
  std::vector<std::size_t> open;  ///< what this rank has to answer
};

/// Plans the requests that `chosen` names. What is answered already (Request::answered) has its
/// place in the plan, and packs without anything else are left out. plan_run()'s errors.
Result<RunPlan> plan_requests(std::span<const Request> requests,
                              std::span<const PreparedRequest> prepared,
                              std::span<const std::size_t> chosen, const PlannerLimits& limits);

}  // namespace evalcar::engine
