#include "agent/run/disk_guard.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "agent/config/units.h"
#include "agent/run/rows.h"
#include "agent/schedule/schedule.h"

namespace evalcar::run {
namespace {

constexpr std::chrono::seconds kPause{5};
/// For limits.lease_budget all files of all leases are asked what they hold: of thousands of leases
/// for a small part of the time. The trainer's room does not wait.
constexpr int kTimesItsCost = 20;
constexpr std::chrono::seconds kLongestPause{60};

/// For its turn to be measured.
bool waits(const state::Evaluation& row) {
  return row.state == state::EvaluationState::kComplete ||
         row.state == state::EvaluationState::kLeased ||
         row.state == state::EvaluationState::kFailed;
}

}  // namespace

DiskGuard::DiskGuard(const Clock& clock, state::Store& store, const stage::Stage& stage,
                     const config::Policy& policy, const Wanted& wanted, const DiskSpace& space,
                     const InFlight& in_flight, Averages& averages, BestKept& best, Leases& leases,
                     Pins& pins)
    : clock_(clock),
      store_(store),
      stage_(stage),
      policy_(policy),
      wanted_(wanted),
      space_(space),
      in_flight_(in_flight),
      averages_(averages),
      best_(best),
      leases_(leases),
      pins_(pins) {}

/// Not asked again after each lease: a file system may tell of freed space late.
bool DiskGuard::Shortage::low() const {
  return free + (before - std::min(before, held.bytes())) < keep;
}

bool DiskGuard::Shortage::ends() const {
  return held.bytes() == 0 || (!low() && held.bytes() <= budget);
}

std::string DiskGuard::Shortage::reason() const {
  return low() ? "free disk space is below " + config::format_bytes(keep) + " (limits.min_free)"
               : "limits.lease_budget is " + config::format_bytes(budget);
}

Status DiskGuard::step(std::int64_t run_id, Slice& slice) {
  const Status ended = end_owed();
  const MonotonicTime now = clock_.monotonic_now();
  if (!cut_ && !look_again_ && now - guarded_at_ < kPause) return ended;
  guarded_at_ = now;
  look_again_ = false;
  const Status looked = look(run_id, slice);
  return ended.has_value() ? looked : ended;
}

Status DiskGuard::look(std::int64_t run_id, Slice& slice) {
  const bool goes_on = std::exchange(cut_, false);
  if (!goes_on) wanted_rows_.clear();
  const auto free = space_.free_bytes();
  if (!free.has_value()) return {};
  const MonotonicTime now = clock_.monotonic_now();
  const bool budget_is_due = space_.has_budget() && (goes_on || now >= budget_due_);
  if (!budget_is_due && *free >= space_.min_free()) return {};
  Shortage shortage;
  shortage.held = stage_.held();
  const MonotonicTime asked = clock_.monotonic_now();
  budget_due_ =
      asked + std::min<MonotonicTime::duration>(kLongestPause, kTimesItsCost * (asked - now));
  shortage.before = shortage.held.bytes();
  if (shortage.before == 0) {
    // What people want goes last, and one a look: the file system may tell of freed space late.
    if (*free >= space_.min_free()) return {};
    const auto given_up = pins_.give_up_oldest();
    return given_up.has_value() ? Status() : Status(given_up.error());
  }
  shortage.free = *free;
  shortage.budget = space_.lease_budget();
  shortage.keep = space_.min_free();
  if (shortage.ends()) return {};
  EVALCAR_RETURN_IF_ERROR(end_unwanted(run_id, shortage, slice));
  cut_ = slice.was_cut() && !shortage.ends();
  if (cut_ || shortage.ends()) return {};
  EVALCAR_ASSIGN_OR_RETURN(const bool window, averages_.give_up_window(run_id));
  if (window) shortage.held = stage_.held();
  EVALCAR_RETURN_IF_ERROR(give_up_rows(run_id, shortage, slice));
  cut_ = slice.was_cut() && !shortage.ends();
  if (cut_) return {};
  while (!shortage.ends()) {
    EVALCAR_ASSIGN_OR_RETURN(const bool best, best_.give_up_worst(shortage.held, shortage.low()));
    if (!best) break;
    shortage.held = stage_.held();
  }
  return {};
}

/// What would never be measured, or would be dropped when its turn came: it ends as it would then,
/// and is not lost.
Status DiskGuard::end_unwanted(std::int64_t run_id, Shortage& shortage, Slice& slice) {
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, rows_with_lease(store_.read(), {.run_id = run_id}));
  const std::set<std::int64_t> passed_over = this->passed_over(rows);
  for (const state::Evaluation& row : rows) {
    if (shortage.ends() || slice.was_cut()) return {};
    const std::string lease = stage_.own(row.lease_path);
    const bool holds = shortage.held.bytes_of(base_name(lease)) > 0;
    if (!holds || !waits(row) || row.id == in_flight_.active) continue;
    if (!passed_over.contains(row.id) && wanted_rows_.contains(row.id)) continue;
    EVALCAR_ASSIGN_OR_RETURN(const std::optional<End> end, end_of(row, passed_over));
    if (!end.has_value()) {
      wanted_rows_.insert(row.id);
    } else {
      EVALCAR_RETURN_IF_ERROR(give_up(rows, row, *end, shortage));
      if (!stage_.holds(lease)) shortage.held.drop(base_name(lease));
    }
    (void)slice.over();
  }
  return {};
}

/// Absent: somebody wants it. As the recorder and the schedule judge it.
Result<std::optional<DiskGuard::End>> DiskGuard::end_of(
    const state::Evaluation& row, const std::set<std::int64_t>& passed_over) const {
  if (passed_over.contains(row.id)) {
    return std::optional(End{state::EvaluationState::kSuperseded, std::string(kNewerCame)});
  }
  if (row.asked || row.settings.requested != 0) return std::optional<End>();
  EVALCAR_ASSIGN_OR_RETURN(const std::string reason, wanted_.why_not(row));
  if (reason.empty()) return std::optional<End>();
  return std::optional(End{state::EvaluationState::kSkipped, std::string(kNotWanted) + reason});
}

/// By the policy, in favour of newer ones.
std::set<std::int64_t> DiskGuard::passed_over(const std::vector<state::Evaluation>& rows) const {
  std::vector<schedule::Candidate> waiting;
  for (const state::Evaluation& row : rows) {
    if (!waits(row)) continue;
    waiting.push_back({.id = row.id,
                       .step = row.step,
                       .kind = row.kind,
                       .series = series_of(row),
                       .asked = row.asked});
  }
  const auto superseded = schedule::choose(waiting, policy_).superseded;
  return {superseded.begin(), superseded.end()};
}

/// The oldest first, but before them those that have numbers already, for some of their tasks.
/// Over the rows, not over what this process leased: most leases may be of an earlier one.
Status DiskGuard::give_up_rows(std::int64_t run_id, Shortage& shortage, Slice& slice) {
  EVALCAR_ASSIGN_OR_RETURN(auto rows, rows_with_lease(store_.read(), {.run_id = run_id}));
  std::stable_partition(rows.begin(), rows.end(), is_partial);
  std::string active;  // what the running evaluation reads from
  for (const state::Evaluation& row : rows) {
    if (row.id == in_flight_.active) active = stage_.own(row.lease_path);
  }
  for (const state::Evaluation& row : rows) {
    if (shortage.ends() || slice.was_cut()) return {};
    const std::string lease = stage_.own(row.lease_path);
    const bool holds = shortage.held.bytes_of(base_name(lease)) > 0;
    if (!holds || row.id == in_flight_.active || lease == active) continue;
    if (row.state == state::EvaluationState::kScored) continue;  // about to be published
    const End end{state::EvaluationState::kLost, "its lease was given up: " + shortage.reason()};
    EVALCAR_RETURN_IF_ERROR(give_up(rows, row, end, shortage));
    if (!stage_.holds(lease)) shortage.held.drop(base_name(lease));
    (void)slice.over();
  }
  return {};
}

/// The row first. Where the disk is short and the store takes nothing, the files: they are the only
/// thing that can make room for it. `rows`: all that may hold a lease; one that several hold goes
/// with the last of them.
Status DiskGuard::give_up(const std::vector<state::Evaluation>& rows, const state::Evaluation& row,
                          const End& end, const Shortage& shortage) {
  const Status ended = end_row(row, end);
  if (ended.has_value()) {
    leases_.release(row);
    return {};
  }
  if (!shortage.low()) return ended;
  if (owed_.insert_or_assign(row.id, end).second) {
    spdlog::warn("{}: {}; it cannot be recorded yet: {}", title(row), end.reason,
                 ended.error().message);
  }
  const bool shared = std::any_of(rows.begin(), rows.end(), [&](const state::Evaluation& other) {
    return stage_.own(other.lease_path) == stage_.own(row.lease_path) && !owed_.contains(other.id);
  });
  return shared ? Status() : leases_.drop_files(row);
}

Status DiskGuard::end_row(const state::Evaluation& row, const End& end) {
  if (is_partial(row)) return leave_in_part(store_, row, end.reason);
  return end_evaluation(store_, row.id, end.state, end.reason);
}

/// Those that something else has ended since need nothing more.
Status DiskGuard::end_owed() {
  while (!owed_.empty()) {
    const auto& [id, end] = *owed_.begin();
    EVALCAR_ASSIGN_OR_RETURN(const state::Evaluation row, store_.read().evaluation(id));
    if (is_open(row.state) || is_partial(row)) EVALCAR_RETURN_IF_ERROR(end_row(row, end));
    leases_.release(row);
    owed_.erase(owed_.begin());
  }
  return {};
}

}  // namespace evalcar::run
