#include "agent/run/disk_guard.h"

#include <algorithm>

#include "agent/config/units.h"
#include "agent/run/rows.h"

namespace evalcar::run {
namespace {
constexpr std::chrono::seconds kPause{5};
}

DiskGuard::DiskGuard(const Clock& clock, state::Store& store, const stage::Stage& stage,
                     const DiskSpace& space, const InFlight& in_flight, Averages& averages,
                     BestKept& best, Leases& leases)
    : clock_(clock),
      store_(store),
      stage_(stage),
      space_(space),
      in_flight_(in_flight),
      averages_(averages),
      best_(best),
      leases_(leases) {}

Status DiskGuard::step(std::int64_t run_id) {
  const MonotonicTime now = clock_.monotonic_now();
  if (now - guarded_at_ < kPause) return {};
  guarded_at_ = now;
  stage::Held held = stage_.held();
  const auto free = space_.free_bytes();
  if (held.bytes == 0 || !free.has_value()) return {};
  const std::uint64_t budget = space_.lease_budget();
  const std::uint64_t keep = space_.min_free();
  // Not asked again: a file system may tell of freed space late.
  for (const std::uint64_t before = held.bytes; held.bytes > 0; held = stage_.held()) {
    const bool low = *free + (before - std::min(before, held.bytes)) < keep;
    if (!low && held.bytes <= budget) break;
    EVALCAR_ASSIGN_OR_RETURN(const bool window, averages_.give_up_window(run_id));
    if (window) continue;
    const std::string why =
        low ? "free disk space is below " + config::format_bytes(keep) + " (limits.min_free)"
            : "limits.lease_budget is " + config::format_bytes(budget);
    EVALCAR_ASSIGN_OR_RETURN(const bool given_up, give_up_oldest(run_id, held, why));
    if (given_up) continue;
    EVALCAR_ASSIGN_OR_RETURN(const bool best, best_.give_up_worst(held));
    if (!best) break;
  }
  return {};
}

/// The oldest row whose lease keeps anything; false: there is none left. First those that have
/// numbers already, for some of their tasks. Over the rows, not over what this process leased: most
/// leases may be of an earlier one.
Result<bool> DiskGuard::give_up_oldest(std::int64_t run_id, const stage::Held& held,
                                       const std::string& why) {
  EVALCAR_ASSIGN_OR_RETURN(auto rows, rows_with_lease(store_.read(), {.run_id = run_id}));
  std::stable_partition(rows.begin(), rows.end(), is_partial);
  std::string active;  // what the running evaluation reads from
  for (const state::Evaluation& row : rows) {
    if (row.id == in_flight_.active) active = stage_.own(row.lease_path);
  }
  for (const state::Evaluation& row : rows) {
    const std::string lease = stage_.own(row.lease_path);
    const bool holds = held.of.contains(base_name(lease));
    if (!holds || row.id == in_flight_.active || lease == active) continue;
    if (row.state == state::EvaluationState::kScored) continue;  // about to be published
    const std::string reason = "its lease was given up: " + why;
    if (is_partial(row)) {
      EVALCAR_RETURN_IF_ERROR(leave_in_part(store_, row, reason));
    } else {
      EVALCAR_RETURN_IF_ERROR(
          end_evaluation(store_, row.id, state::EvaluationState::kLost, reason));
    }
    leases_.release(row);
    return true;
  }
  return false;
}

}  // namespace evalcar::run
