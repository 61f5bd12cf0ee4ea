#include "agent/run/disk_guard.h"

#include "agent/config/units.h"
#include "agent/run/rows.h"

namespace evalcar::run {
namespace {
constexpr std::chrono::seconds kPause{5};
}

DiskGuard::DiskGuard(const Clock& clock, state::Store& store, const stage::Stage& stage,
                     const DiskSpace& space, const InFlight& in_flight, Leases& leases)
    : clock_(clock),
      store_(store),
      stage_(stage),
      space_(space),
      in_flight_(in_flight),
      leases_(leases) {}

/// Over the rows, not over what this process leased: most leases may be of an earlier one.
Status DiskGuard::step(std::int64_t run_id) {
  const MonotonicTime now = clock_.monotonic_now();
  if (now - guarded_at_ < kPause) return {};
  guarded_at_ = now;
  state::EvaluationFilter filter;
  filter.run_id = run_id;
  filter.states = states_with_lease();
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, store_.read().evaluations(filter));  // oldest first
  std::uint64_t held = 0;
  std::vector<std::pair<state::Evaluation, std::uint64_t>> candidates;
  for (const state::Evaluation& row : rows) {
    const std::uint64_t bytes = stage_.held_bytes(row.lease_path);
    held += bytes;
    if (bytes > 0 && row.id != in_flight_.active) candidates.emplace_back(row, bytes);
  }
  const auto free = space_.free_bytes();
  if (candidates.empty() || !free.has_value()) return {};
  const std::uint64_t budget = space_.lease_budget();
  const std::uint64_t keep = space_.min_free();
  std::uint64_t freed = 0;
  for (const auto& [row, bytes] : candidates) {
    const bool low = *free + freed < keep;
    if (!low && held - freed <= budget) break;
    EVALCAR_RETURN_IF_ERROR(end_evaluation(
        store_, row.id, state::EvaluationState::kLost,
        low ? "its lease was given up: free disk space is below " + config::format_bytes(keep) +
                  " (limits.min_free)"
            : "its lease was given up: limits.lease_budget is " + config::format_bytes(budget)));
    leases_.release(row);
    freed += bytes;
  }
  return {};
}

}  // namespace evalcar::run
