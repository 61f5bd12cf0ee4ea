#include "evaluator/engine/run_plan.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

namespace evalcar::engine {
namespace {

/// Over `chosen`, whose numbers the groups hold then.
Result<std::vector<Pack>> plan_chosen(std::span<const PreparedRequest> prepared,
                                      const std::vector<std::size_t>& chosen,
                                      const PlannerLimits& limits) {
  std::vector<PlanRequest> planned;
  for (const std::size_t i : chosen) planned.push_back(prepared[i].plan);
  EVALCAR_ASSIGN_OR_RETURN(auto packs, plan_run(planned, limits));
  for (Pack& pack : packs) {
    for (Group& group : pack.groups) {
      for (std::size_t& request : group.requests) request = chosen[request];
    }
  }
  return packs;
}

Result<std::vector<Pack>> plan_open(std::span<const PreparedRequest> prepared,
                                    std::vector<std::size_t> chosen,
                                    const std::vector<bool>& answered,
                                    const PlannerLimits& limits) {
  EVALCAR_ASSIGN_OR_RETURN(auto packs, plan_chosen(prepared, chosen, limits));
  auto open = open_packs(std::move(packs), answered, limits.max_sequences);
  if (open.has_value()) return std::move(*open);
  std::erase_if(chosen, [&](std::size_t i) { return answered[i]; });
  return plan_chosen(prepared, chosen, limits);
}

}  // namespace

Result<RunPlan> plan_requests(std::span<const Request> requests,
                              std::span<const PreparedRequest> prepared,
                              std::span<const std::size_t> chosen, const PlannerLimits& limits) {
  std::vector<bool> answered;
  for (const Request& request : requests) answered.push_back(request.answered);
  std::vector<std::size_t> generated, scored;
  std::ranges::partition_copy(chosen, std::back_inserter(scored), std::back_inserter(generated),
                              [&](std::size_t i) { return requests[i].scoring.has_value(); });
  RunPlan plan;
  EVALCAR_ASSIGN_OR_RETURN(plan.generating,
                           plan_open(prepared, std::move(generated), answered, limits));
  EVALCAR_ASSIGN_OR_RETURN(plan.scoring, plan_open(prepared, std::move(scored), answered, limits));
  for (const auto* const packs : {&plan.generating, &plan.scoring}) {
    for (const Pack& pack : *packs) {
      for (const Group& group : pack.groups) {
        std::ranges::copy_if(group.requests, std::back_inserter(plan.open),
                             [&](std::size_t i) { return !answered[i]; });
      }
    }
  }
  return plan;
}

}  // namespace evalcar::engine
