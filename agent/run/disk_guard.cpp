#include "agent/run/disk_guard.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <utility>

#include "agent/config/units.h"
#include "agent/run/rows.h"
#include "agent/schedule/schedule.h"

namespace evalcar::run {
namespace {

constexpr std::chrono::seconds kSpacePause{5};
/// For limits.lease_budget all files of all leases are asked what they hold: of thousands of leases
/// for a small part of the time. The trainer's room does not wait.
constexpr int kTimesItsCost = 20;
constexpr std::chrono::seconds kLongestSpacePause{60};

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
  if (!cut_ && !look_again_ && now - guarded_at_ < kSpacePause) return ended;
  guarded_at_ = now;
  look_again_ = false;
  const Status looked = look(run_id, slice);
  return ended.has_value() ? looked : ended;
}

Status DiskGuard::look(std::int64_t run_id, Slice& slice) {
  const bool goes_on = std::exchange(cut_, false);
  if (!goes_on) wanted_leases_.clear();
  const auto free = space_.free_bytes();
  if (!free.has_value()) return {};
  const MonotonicTime now = clock_.monotonic_now();
  const bool budget_is_due = space_.has_budget() && (goes_on || now >= budget_due_);
  if (!budget_is_due && *free >= space_.min_free()) return {};
  // What was measured may not be ranked yet, and what was overtaken still there.
  if (const Status ranked = best_.step(run_id, slice); !ranked.has_value()) {
    spdlog::debug("{}", ranked.error().message);  // as ranked before
  }
  cut_ = slice.was_cut();  // some of what was overtaken is still to go
  if (cut_) return {};
  Shortage shortage;
  shortage.held = stage_.held();
  const MonotonicTime asked = clock_.monotonic_now();
  budget_due_ =
      asked + std::min<MonotonicTime::duration>(kLongestSpacePause, kTimesItsCost * (asked - now));
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
  EVALCAR_ASSIGN_OR_RETURN(const auto window, averages_.window_of(run_id));
  EVALCAR_RETURN_IF_ERROR(end_unwanted(run_id, {window.begin(), window.end()}, shortage, slice));
  cut_ = slice.was_cut() && !shortage.ends();
  if (cut_ || shortage.ends()) return {};
  EVALCAR_ASSIGN_OR_RETURN(const bool any, averages_.give_up_window(run_id));
  if (any) shortage.held = stage_.held();
  if (!window.empty()) EVALCAR_RETURN_IF_ERROR(end_unwanted(run_id, {}, shortage, slice));
  if (!slice.was_cut() && !shortage.ends()) {
    EVALCAR_ASSIGN_OR_RETURN(const Choice choice, this->choice(run_id));
    slice.begin_work();
    EVALCAR_RETURN_IF_ERROR(give_up_rows(choice, shortage, slice));
    if (!slice.was_cut()) EVALCAR_RETURN_IF_ERROR(give_up_best(choice, shortage, slice));
  }
  cut_ = slice.was_cut() && !shortage.ends();
  return {};
}

/// By their oldest row.
Result<std::vector<DiskGuard::Holders>> DiskGuard::holders(std::int64_t run_id) const {
  EVALCAR_ASSIGN_OR_RETURN(auto rows, rows_with_lease(store_.read(), {.run_id = run_id}));
  std::vector<Holders> leases;
  std::map<std::string, std::size_t> place;
  for (state::Evaluation& row : rows) {
    const std::string name = base_name(stage_.own(row.lease_path));
    if (name.empty()) continue;  // read where it lies
    const auto [found, is_new] = place.try_emplace(name, leases.size());
    if (is_new) leases.push_back({name, {}});
    leases[found->second].rows.push_back(std::move(row));
  }
  return leases;
}

/// It is read from now, or was and is about to be published.
bool DiskGuard::is_busy(const Holders& lease) const {
  return std::any_of(lease.rows.begin(), lease.rows.end(), [this](const state::Evaluation& row) {
    return row.id == in_flight_.active || row.state == state::EvaluationState::kScored;
  });
}

/// What would never be measured, or would be dropped when its turn came: it ends as it would then,
/// and is not lost. Not yet where its folder stays all the same: by its name among `spared`, as one
/// of the best, or for a row that somebody wants.
Status DiskGuard::end_unwanted(std::int64_t run_id, const std::set<std::string>& spared,
                               Shortage& shortage, Slice& slice) {
  EVALCAR_ASSIGN_OR_RETURN(const auto leases, holders(run_id));
  EVALCAR_ASSIGN_OR_RETURN(const auto passed_over, this->passed_over(run_id, leases));
  slice.begin_work();
  for (const Holders& lease : leases) {
    if (shortage.ends() || slice.was_cut()) return {};
    if (shortage.held.bytes_of(lease.name) == 0 || is_busy(lease)) continue;
    if (best_.holds(lease.rows.front()) || spared.contains(lease.name)) continue;
    if (wanted_leases_.contains(lease.name)) continue;
    std::vector<End> ends;
    for (const state::Evaluation& row : lease.rows) {
      EVALCAR_ASSIGN_OR_RETURN(std::optional<End> end, end_of(row, passed_over));
      if (!end.has_value()) break;
      ends.push_back(std::move(*end));
    }
    if (ends.size() == lease.rows.size()) {
      EVALCAR_RETURN_IF_ERROR(give_up(lease, ends, shortage));
    } else {
      wanted_leases_.insert(lease.name);
    }
    (void)slice.over();
  }
  return {};
}

/// Absent: somebody wants it. As the recorder and the schedule judge it.
Result<std::optional<DiskGuard::End>> DiskGuard::end_of(
    const state::Evaluation& row, const std::set<std::int64_t>& passed_over) const {
  if (!waits(row)) return std::optional<End>();
  if (passed_over.contains(row.id)) {
    return std::optional(End{state::EvaluationState::kSuperseded, std::string(kNewerCame)});
  }
  if (row.asked || row.settings.requested != 0) return std::optional<End>();
  EVALCAR_ASSIGN_OR_RETURN(const std::string reason, wanted_.why_not(row));
  if (reason.empty()) return std::optional<End>();
  return std::optional(End{state::EvaluationState::kSkipped, std::string(kNotWanted) + reason});
}

/// By the policy, in favour of newer ones.
Result<std::set<std::int64_t>> DiskGuard::passed_over(std::int64_t run_id,
                                                      const std::vector<Holders>& leases) const {
  if (policy_ != config::Policy::kLatest) return std::set<std::int64_t>();
  EVALCAR_ASSIGN_OR_RETURN(const auto written, store_.read().written_at({.run_id = run_id}));
  std::vector<schedule::Candidate> waiting;
  for (const Holders& lease : leases) {
    for (const state::Evaluation& row : lease.rows) {
      if (!waits(row)) continue;
      const auto known = written.find(row.id);
      waiting.push_back({.id = row.id,
                         .step = row.step,
                         .kind = row.kind,
                         .series = series_of(row),
                         .asked = row.asked,
                         .written_ns = known == written.end() ? 0 : known->second,
                         .failed = row.failures > 0});
    }
  }
  const auto superseded = schedule::choose(waiting, policy_).superseded;
  return std::set<std::int64_t>(superseded.begin(), superseded.end());
}

/// The oldest first, but before them those that have numbers already, for some of their tasks.
/// Over the rows, not over what this process leased: most leases may be of an earlier one. Not what
/// is read from now: it will be let go.
Result<DiskGuard::Choice> DiskGuard::choice(std::int64_t run_id) const {
  EVALCAR_ASSIGN_OR_RETURN(auto leases, holders(run_id));
  EVALCAR_ASSIGN_OR_RETURN(auto passed_over, this->passed_over(run_id, leases));
  std::erase_if(leases, [this](const Holders& lease) { return is_busy(lease); });
  std::stable_partition(leases.begin(), leases.end(), [](const Holders& lease) {
    return std::all_of(lease.rows.begin(), lease.rows.end(), is_partial);
  });
  Choice choice{std::move(leases), {}, std::move(passed_over)};
  for (std::size_t i = 0; i < choice.leases.size(); ++i) choice.place[choice.leases[i].name] = i;
  return choice;
}

const DiskGuard::Holders* DiskGuard::Choice::find(const std::string& name) const {
  const auto found = place.find(name);
  return found != place.end() ? &leases[found->second] : nullptr;
}

/// An average that frees nothing alone goes with the weights that it holds, not they with it: it
/// holds those of several checkpoints.
Status DiskGuard::give_up_rows(const Choice& choice, Shortage& shortage, Slice& slice) {
  const stage::Held::Files staying = this->staying(choice, shortage);
  for (const Holders& lease : choice.leases) {
    if (shortage.ends() || slice.was_cut()) return {};
    if (best_.holds(lease.rows.front())) continue;
    if (!shortage.held.can_free(lease.name, staying)) continue;
    const bool is_average = lease.rows.front().kind == "average";
    if (is_average && shortage.held.freed_by({lease.name}) == 0) continue;
    EVALCAR_RETURN_IF_ERROR(give_up_all_of(lease.name, choice, shortage, slice));
  }
  return {};
}

/// The worst first, with the rows that other tasks still wait in.
Status DiskGuard::give_up_best(const Choice& choice, Shortage& shortage, Slice& slice) {
  EVALCAR_ASSIGN_OR_RETURN(const auto needed, lease_names_of_rows(store_.read(), stage_));
  slice.begin_work();
  for (const std::string& name : best_.worst_first()) {
    if (shortage.ends() || slice.was_cut()) return {};
    const bool is_busy = needed.contains(name) && choice.find(name) == nullptr;
    if (is_busy || !shortage.held.can_free(name, staying(choice, shortage, name))) continue;
    EVALCAR_RETURN_IF_ERROR(give_up_all_of(name, choice, shortage, slice));
  }
  return {};
}

/// What is held by leases that do not go for the sake of others.
stage::Held::Files DiskGuard::staying(const Choice& choice, const Shortage& shortage,
                                      const std::string& but) const {
  std::vector<std::string> names = shortage.held.leases();
  std::erase_if(names, [&](const std::string& name) {
    const Holders* const lease = choice.find(name);
    return name == but || (lease != nullptr && !best_.holds(lease->rows.front()));
  });
  return shortage.held.files_of(names);
}

/// Frees something of what this lease holds, as can_free() says it does: if others hold it, too
/// (averages hold the files of their members' leases), with those that may go, and before it. Only
/// a stop comes in between: what was left might be measured next, and the others be lost for
/// nothing.
Status DiskGuard::give_up_all_of(const std::string& name, const Choice& choice, Shortage& shortage,
                                 Slice& slice) {
  std::set<std::string> together = {name};
  if (shortage.held.freed_by(together) == 0) {
    for (const std::string& sharer : shortage.held.sharers_of(name)) {
      const Holders* const lease = choice.find(sharer);
      if (lease != nullptr && !best_.holds(lease->rows.front())) together.insert(sharer);
    }
  }
  std::vector<const Holders*> going;
  for (const Holders& lease : choice.leases) {
    if (lease.name != name && together.contains(lease.name)) going.push_back(&lease);
  }
  const Holders without_rows{name, {}};
  const Holders* const last = choice.find(name);
  going.push_back(last != nullptr ? last : &without_rows);
  for (const Holders* const lease : going) {
    if (shortage.ends() || slice.was_cut()) return {};
    EVALCAR_ASSIGN_OR_RETURN(const auto ends, ends_for_room(*lease, choice.passed_over, shortage));
    EVALCAR_RETURN_IF_ERROR(give_up(*lease, ends, shortage));
    (void)slice.over_stopping();
  }
  (void)slice.over();
  return {};
}

/// How its rows end: as they would have, where nobody wants them, and else as lost.
Result<std::vector<DiskGuard::End>> DiskGuard::ends_for_room(
    const Holders& lease, const std::set<std::int64_t>& passed_over,
    const Shortage& shortage) const {
  std::vector<End> ends;
  for (const state::Evaluation& row : lease.rows) {
    EVALCAR_ASSIGN_OR_RETURN(std::optional<End> end, end_of(row, passed_over));
    ends.push_back(std::move(end).value_or(
        End{state::EvaluationState::kLost, "its lease was given up: " + shortage.reason()}));
  }
  return ends;
}

/// The rows first, each by its own of `ends`. Where the disk is short and the store takes nothing,
/// the files: they are the only thing that can make room for it.
Status DiskGuard::give_up(const Holders& lease, const std::vector<End>& ends, Shortage& shortage) {
  std::vector<const state::Evaluation*> ended;
  const Status gone = [&]() -> Status {
    for (std::size_t i = 0; i < lease.rows.size(); ++i) {
      EVALCAR_ASSIGN_OR_RETURN(const bool told, end_or_owe(lease.rows[i], ends[i], shortage));
      if (told) ended.push_back(&lease.rows[i]);
    }
    EVALCAR_RETURN_IF_ERROR(best_.give_up(lease.name, shortage.low()));
    return leases_.drop_folder(lease.name, lease.rows);
  }();
  for (const state::Evaluation* const row : ended) leases_.release(*row);
  if (gone.has_value()) shortage.held.drop(lease.name);
  return gone;
}

/// False: the store takes nothing while room is short; the row ends in a later step().
Result<bool> DiskGuard::end_or_owe(const state::Evaluation& row, const End& end,
                                   const Shortage& shortage) {
  const Status ended = end_row(row, end);
  if (ended.has_value()) return true;
  if (!shortage.low()) return ended.error();
  if (owed_.insert_or_assign(row.id, end).second) {
    spdlog::warn("{}: {}; it cannot be recorded yet: {}", title(row), end.reason,
                 ended.error().message);
  }
  return false;
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
