#include "agent/run/needed_leases.h"

#include "agent/run/slice.h"

namespace evalcar::run {

Result<NeededLeases::Turn> NeededLeases::step(
    std::int64_t run_id, const std::optional<std::set<std::int64_t>>& torn_steps, bool recorded) {
  Turn turn;
  Slice first(around_);
  if (torn_steps.has_value()) {
    EVALCAR_RETURN_IF_ERROR(averages_.step(run_id, *torn_steps, first));
  }
  if (recorded) EVALCAR_RETURN_IF_ERROR(best_.step(run_id, first));
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
    EVALCAR_ASSIGN_OR_RETURN(const auto names, needed_names(run_id));
    const auto is_needed = [this, &names](const std::string& name) {
      return names.contains(name) || averages_.window_holds(name);
    };
    EVALCAR_RETURN_IF_ERROR(leftovers_.remove(now, is_needed, slice));
    if (leftovers_.wait(around_.clock.monotonic_now())) return turn;  // cut
  }
  turn.known = true;
  return turn;
}

/// Also before the averages have looked and anything was ranked: what those could ask for.
Result<std::set<std::string>> NeededLeases::needed_names(std::int64_t run_id) const {
  EVALCAR_ASSIGN_OR_RETURN(const auto window, averages_.window_of(run_id));
  std::set<std::string> names = {window.begin(), window.end()};
  if (kept_.known) {
    names.insert(kept_.names.begin(), kept_.names.end());
  } else {
    EVALCAR_ASSIGN_OR_RETURN(const auto best, best_.names_of(run_id));
    names.insert(best.begin(), best.end());
  }
  return names;
}

}  // namespace evalcar::run
