#include "agent/run/unwanted.h"

#include <spdlog/spdlog.h>

#include <chrono>

#include "agent/run/completion.h"
#include "agent/run/rows.h"

namespace evalcar::run {
namespace {

constexpr std::chrono::seconds kLeftoversPause{10};

}  // namespace

Result<bool> UnwantedRows::end(std::int64_t run_id, Slice& slice) {
  bool waits = false;
  EVALCAR_ASSIGN_OR_RETURN(const auto rows,
                           store_.read().evaluations({.run_id = run_id, .states = kWaitingStates}));
  for (const state::Evaluation& row : rows) {
    if (wanted_.matches(row) || row.settings.requested != 0) continue;
    if (slice.was_cut()) return waits;
    EVALCAR_ASSIGN_OR_RETURN(const bool handed_over,
                             hand_over_lease(store_, wanted_, leases_, row));
    waits = waits || handed_over;
    EVALCAR_RETURN_IF_ERROR(end_evaluation(store_, row.id, state::EvaluationState::kSkipped,
                                           std::string(kNotWanted).append(kConfigurationChanged)));
    leases_.release(row);
    (void)slice.over();
  }
  ended_ = true;
  return waits;
}

Status Leftovers::remove(MonotonicTime now,
                         const std::function<bool(const std::string& name)>& is_needed,
                         Slice& slice) {
  EVALCAR_ASSIGN_OR_RETURN(auto needed, lease_names_of_rows(store_.read(), stage_));
  for (const std::string& name : stage_.names()) {
    if (is_needed(name)) needed.insert(name);
  }
  const Status removed = stage_.remove_leftovers(needed, [&slice] { return slice.over(); });
  if (!removed.has_value()) {
    not_before_ = now + kLeftoversPause;
    spdlog::warn("{}; tried again", removed.error().message);
  }
  return {};
}

}  // namespace evalcar::run
