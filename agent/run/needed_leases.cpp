#include "agent/run/needed_leases.h"

#include <string>

#include "agent/run/slice.h"

namespace evalcar::run {

Result<NeededLeases::Turn> NeededLeases::step(
    std::int64_t run_id, const std::optional<std::set<std::int64_t>>& torn_steps) {
  Turn turn;
  if (torn_steps.has_value()) {
    Slice slice(around_);
    EVALCAR_RETURN_IF_ERROR(averages_.step(run_id, *torn_steps, slice));
    EVALCAR_RETURN_IF_ERROR(best_.step(run_id, slice));
  }
  // Before any lease is given up for lack of space: theirs go first, or to the row that is wanted
  // now.
  if (!unwanted_.ended()) {
    Slice slice(around_);
    EVALCAR_ASSIGN_OR_RETURN(turn.one_waits, unwanted_.end(run_id, slice));
    if (!unwanted_.ended()) return turn;
  }
  // Before the guard: what nobody needs makes room, too.
  if (const MonotonicTime now = around_.clock.monotonic_now(); leftovers_.wait(now)) {
    Slice slice(around_);
    const auto is_needed = [this](const std::string& name) {
      return averages_.keeps_name(name) || kept_.may_hold(name);
    };
    EVALCAR_RETURN_IF_ERROR(leftovers_.remove(now, is_needed, slice));
    if (leftovers_.wait(around_.clock.monotonic_now())) return turn;  // cut
  }
  turn.known = true;
  return turn;
}

}  // namespace evalcar::run
