#include "evaluator/engine/run_plan.h"

#include <utility>

namespace evalcar::engine {
namespace {

Result<std::vector<Pack>> plan_packs(std::span<const PreparedRequest> prepared,
                                     std::span<const std::size_t> chosen,
                                     const PlannerLimits& limits) {
  std::vector<PlanRequest> requests;
  for (const std::size_t i : chosen) requests.push_back(prepared[i].plan);
  EVALCAR_ASSIGN_OR_RETURN(auto packs, plan_run(requests, limits));
  for (Pack& pack : packs) {
    for (Group& group : pack.groups) {
      for (std::size_t& request : group.requests) request = chosen[request];
    }
  }
  return packs;
}

}  // namespace

std::vector<std::size_t> RunPlan::requests() const {
  std::vector<std::size_t> all;
  for (const std::vector<Pack>* packs : {&generating, &scoring}) {
    for (const Pack& pack : *packs) {
      for (const Group& group : pack.groups)
        all.insert(all.end(), group.requests.begin(), group.requests.end());
    }
  }
  return all;
}

Result<RunPlan> plan_requests(std::span<const Request> requests,
                              std::span<const PreparedRequest> prepared,
                              std::span<const std::size_t> chosen, const PlannerLimits& limits) {
  std::vector<std::size_t> generated, scored;
  for (const std::size_t i : chosen)
    (requests[i].scoring.has_value() ? scored : generated).push_back(i);
  EVALCAR_ASSIGN_OR_RETURN(auto generating, plan_packs(prepared, generated, limits));
  EVALCAR_ASSIGN_OR_RETURN(auto scoring, plan_packs(prepared, scored, limits));
  return RunPlan{std::move(generating), std::move(scoring)};
}

void leave_out_known_texts(std::span<const Request> requests, std::vector<std::size_t>& chosen) {
  std::erase_if(chosen, [&](std::size_t i) {
    const Request& request = requests[i];
    return request.answered_before && !request.scoring && request.images.empty();
  });
}

}  // namespace evalcar::engine
