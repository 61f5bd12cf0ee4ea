#include "agent/run/completion.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "agent/run/rows.h"
#include "agent/schedule/schedule.h"

namespace evalcar::run {
namespace {

/// Under which circumstances a failed task would be tried now; absent: it would fail again, as far
/// as is known.
std::optional<std::string> better_circumstances(const state::FailedTask& failed,
                                                const Circumstances& now) {
  std::string found;
  if (failed.kind == protocol::kData || failed.kind.empty()) {  // "": nobody knows why it failed
    if (!now.data.has_value()) return std::nullopt;
    const auto data = now.data->find(failed.task);
    if (data == now.data->end() || !data->second.error.empty()) return std::nullopt;
    found = data->second.circumstances;
    if (failed.circumstances.empty()) return found;
  } else {
    found = now.evaluator;
  }
  if (found.empty() || found == failed.circumstances) return std::nullopt;
  return found;
}

}  // namespace

Result<bool> hand_over_lease(state::Store& store, const Wanted& wanted, Leases& leases,
                             const state::Evaluation& row) {
  if (!leases.holds_folder(row)) return false;
  bool any = false;
  for (const state::NewEvaluation& next : wanted.evaluations_of(row.checkpoint_id, row.kind)) {
    EVALCAR_ASSIGN_OR_RETURN(const std::string reason,
                             wanted.why_not(row.run_id, row.step, row.kind, next.settings.tasks));
    if (!reason.empty()) continue;
    EVALCAR_ASSIGN_OR_RETURN(const state::Evaluation heir, store.plan_evaluation(next));
    EVALCAR_ASSIGN_OR_RETURN(const bool handed_over, leases.hand_over(row, heir));
    any |= handed_over;
  }
  return any;
}

Result<bool> Completion::step(std::int64_t run_id, const Circumstances& now) {
  const auto looking_at = std::make_pair(now.look, now.evaluator);
  if (looked_at_ == looking_at) return false;
  EVALCAR_ASSIGN_OR_RETURN(const auto rows,
                           store_.read().evaluations({.run_id = run_id, .only_partial = true}));
  waiting_ = 0;
  bool taken = false;
  for (auto row = rows.rbegin(); row != rows.rend(); ++row) {  // newest first
    EVALCAR_ASSIGN_OR_RETURN(const bool wanted, is_wanted(*row));
    if (!wanted) continue;
    ++waiting_;
    if (taken) continue;
    EVALCAR_ASSIGN_OR_RETURN(taken, take_up(*row, now));
  }
  if (!taken) looked_at_ = looking_at;
  return taken;
}

/// By the policy, in favour of a newer checkpoint that is whole.
Result<bool> Completion::is_passed_over(const state::Evaluation& row) const {
  if (settings_.policy != config::Policy::kLatest) return false;
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t written_ns, store_.read().written_at(row.id));
  const DiskView::WrittenAt there = view_.written_at();
  return std::any_of(there.begin(), there.end(), [&](const auto& save) {
    return schedule::is_newer({save.first, save.second}, {row.step, written_ns});
  });
}

/// If not, the row gives its lease up.
Result<bool> Completion::is_wanted(const state::Evaluation& row) {
  EVALCAR_ASSIGN_OR_RETURN(const auto of_step,
                           store_.read().evaluations({.run_id = row.run_id, .step = row.step}));
  bool is_newest = true;
  for (const state::Evaluation& other : of_step) is_newest &= other.generation <= row.generation;
  EVALCAR_ASSIGN_OR_RETURN(const std::string unwanted, wanted_.why_not(row));
  const bool matches = wanted_.matches(row);
  std::string reason = unwanted;
  if (!matches) reason = kConfigurationChanged;
  EVALCAR_ASSIGN_OR_RETURN(const bool passed_over, is_passed_over(row));
  if (passed_over) reason = kNewerCame;
  if (!is_newest) reason = "its checkpoint was written again";
  if (reason.empty()) {
    const auto kind = checkpoint::weights_kind_from_name(row.kind);
    return leases_.holds_folder(row) ||
           (kind.has_value() && view_.whole_in(row.checkpoint_path, {row.step, *kind}) != nullptr);
  }
  if (row.lease_path.empty()) return false;
  if (!matches && is_newest) {
    EVALCAR_ASSIGN_OR_RETURN(const bool handed_over,
                             hand_over_lease(store_, wanted_, leases_, row));
    if (handed_over) reason += ", its lease is another evaluation's now";
  }
  EVALCAR_RETURN_IF_ERROR(leave_in_part(store_, row, std::string(kNotWanted) + reason));
  leases_.release(row);
  return false;
}

Result<bool> Completion::take_up(const state::Evaluation& row, const Circumstances& now) {
  const auto before = taken_up_.find(row.id);
  if (before != taken_up_.end() && before->second == now.look) return false;
  EVALCAR_ASSIGN_OR_RETURN(const auto failed, store_.read().failed_tasks(row.id));
  std::map<std::string, std::string> better;
  for (const state::FailedTask& task : failed) {
    if (auto found = better_circumstances(task, now)) better[task.task] = std::move(*found);
  }
  if (better.empty()) return false;
  EVALCAR_RETURN_IF_ERROR(store_.begin_completion(row.id, better));
  taken_up_[row.id] = now.look;
  spdlog::info("{}: what {} of its tasks failed by is over, they are measured now", title(row),
               better.size());
  return true;
}

}  // namespace evalcar::run
