// The packs of a run. What is generated and what is scored are computed differently, so each has a
// plan of its own.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "evaluator/engine/engine.h"
#include "evaluator/engine/planner.h"
#include "evaluator/engine/requests.h"
#include "store/base/result.h"

namespace evalcar::engine {

/// Groups name requests by their place in the run.
struct RunPlan {
  std::vector<Pack> generating;  ///< goes first
  std::vector<Pack> scoring;

  /// In the order in which they are computed.
  std::vector<std::size_t> requests() const;
};

/// Of the requests `chosen`, ascending, those of this rank. `prepared` has one for each request.
/// The errors are plan_run()'s.
Result<RunPlan> plan_requests(std::span<const Request> requests,
                              std::span<const PreparedRequest> prepared,
                              std::span<const std::size_t> chosen, const PlannerLimits& limits);

/// Takes the texts that are generated and whose answers are known out of `chosen`. Where drafts are
/// tried, those are ordered by lengths that an interrupted process knew and this one does not: to
/// find each one's old company most would be computed again, and a row that is decoded there has
/// the same bits whoever stands beside it.
void leave_out_known_texts(std::span<const Request> requests, std::vector<std::size_t>& chosen);

}  // namespace evalcar::engine
