#include "agent/run/averages.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <span>

#include "agent/run/rows.h"

namespace evalcar::run {

using checkpoint::WeightsKind;
using state::EvaluationState;

namespace {
constexpr const char* kRegular = "regular";
constexpr const char* kAverage = "average";
}  // namespace

Averages::Averages(state::Store& store, stage::Stage& stage, const Wanted& wanted,
                   const DiskSpace& space, const DiskView& view, const KeptForBest& kept)
    : store_(store), stage_(stage), wanted_(wanted), space_(space), view_(view), kept_(kept) {}

std::string Averages::Known::lease_name() const {
  return lease_name_of(checkpoint.step, checkpoint.generation, kRegular);
}

bool Averages::keeps_name(const std::string& name) const {
  if (wanted_.average_last() == 0) return false;
  return due_ || window_.contains(name);
}

void Averages::forget() {
  look_again();
  window_.clear();
}

/// By step.
Result<std::vector<Averages::Known>> Averages::known(std::int64_t run_id) const {
  EVALCAR_ASSIGN_OR_RETURN(auto kinds, store_.read().known_kinds(run_id));
  EVALCAR_ASSIGN_OR_RETURN(const auto checkpoints, store_.read().checkpoints(run_id));
  std::map<std::string, const state::Checkpoint*> newest;  // by name; generations ascend
  for (const state::Checkpoint& checkpoint : checkpoints) newest[checkpoint.name] = &checkpoint;
  std::vector<Known> found;
  for (state::KnownKind& kind : kinds) {
    const state::Checkpoint& checkpoint = *newest.at(kind.name);
    if (kind.kind != kRegular || is_snapshot(checkpoint)) continue;
    found.push_back({checkpoint, std::move(kind.files)});
  }
  return found;
}

/// Where its files are now; "" if they are gone.
std::string Averages::files_of(const Known& member) const {
  const std::string lease = stage_.dir_of(member.lease_name());
  if (stage_.holds(lease)) return lease;
  const bool there = view_.complete.contains({member.checkpoint.step, WeightsKind::kRegular});
  return there ? member.checkpoint.path : "";
}

Status Averages::step(std::int64_t run_id, const std::set<std::int64_t>& torn, Slice& slice) {
  if (!due()) return {};
  if (due_) {
    EVALCAR_ASSIGN_OR_RETURN(const auto all, known(run_id));
    EVALCAR_RETURN_IF_ERROR(keep_window(all));
    std::set<std::int64_t> open;  // may still become complete
    state::EvaluationFilter filter;
    filter.run_id = run_id;
    filter.kind = kRegular;
    filter.states = {EvaluationState::kFound};
    EVALCAR_ASSIGN_OR_RETURN(const auto found, store_.read().evaluations(filter));
    for (const state::Evaluation& row : found) {
      if (view_.present.contains(row.step) && !torn.contains(row.step)) open.insert(row.step);
    }
    EVALCAR_RETURN_IF_ERROR(form_all(all, open, slice));
    if (slice.was_cut()) return {};
    EVALCAR_RETURN_IF_ERROR(take_up_unformed(run_id, all, open));
    due_ = false;
    trim_due_ = true;
    formed_.clear();
  }
  return trim(slice);
}

/// For one between them that may still become complete.
bool Averages::must_wait(std::span<const Known> members, const std::set<std::int64_t>& open) {
  const auto waits = open.upper_bound(members.front().checkpoint.step);
  return waits != open.end() && *waits < members.back().checkpoint.step;
}

/// Newest first; `open`: steps that may still become complete.
Status Averages::form_all(const std::vector<Known>& all, const std::set<std::int64_t>& open,
                          Slice& slice) {
  const auto last = static_cast<std::size_t>(wanted_.average_last());
  for (std::size_t end = all.size(); end >= last; --end) {
    const std::span<const Known> members(&all[end - last], last);
    const std::string name = members.back().lease_name();
    if (formed_.contains(name)) continue;
    if (slice.was_cut()) return {};
    if (!must_wait(members, open) && !files_of(members.back()).empty()) {
      EVALCAR_RETURN_IF_ERROR(form(members));
    }
    formed_.insert(name);
    (void)slice.over();
  }
  return {};
}

/// `members`: oldest first; the files of the last one are there.
Status Averages::form(std::span<const Known> members) {
  for (const auto& wanted : wanted_.evaluations_of(members.back().checkpoint.id, kAverage)) {
    EVALCAR_RETURN_IF_ERROR(form(members, wanted));
  }
  return {};
}

Status Averages::form(std::span<const Known> members, const state::NewEvaluation& wanted) {
  const state::Checkpoint& newest = members.back().checkpoint;
  EVALCAR_ASSIGN_OR_RETURN(
      const std::string unwanted,
      wanted_.why_not(newest.run_id, newest.step, kAverage, wanted.settings.tasks));
  if (!unwanted.empty()) return {};
  EVALCAR_ASSIGN_OR_RETURN(const state::Evaluation row, store_.plan_evaluation(wanted));
  return lease(members, row);
}

Status Averages::lease(std::span<const Known> members, const state::Evaluation& row) {
  const state::Checkpoint& newest = members.back().checkpoint;
  if (row.state != EvaluationState::kFound && row.state != EvaluationState::kComplete) return {};
  if (row.state == EvaluationState::kComplete && stage_.holds(row.lease_path)) return {};
  std::vector<stage::Member> parts;
  for (const Known& member : members) {
    const std::string dir = files_of(member);
    if (dir.empty() && !stage_.answers()) return {};
    if (dir.empty()) {
      return end_evaluation(store_, row.id, EvaluationState::kLost,
                            "the average of " + std::to_string(members.size()) +
                                " checkpoints: " + member.checkpoint.name + " is gone");
    }
    parts.push_back({std::to_string(member.checkpoint.step), dir, member.files});
  }
  const std::string name = lease_name_of(newest.step, newest.generation, kAverage);
  EVALCAR_ASSIGN_OR_RETURN(const bool shared, another_holds(row, stage_.dir_of(name)));
  if (shared) {
    if (row.state == EvaluationState::kFound) {
      EVALCAR_RETURN_IF_ERROR(store_.transition(row.id, EvaluationState::kComplete));
    }
    return store_.mark_leased(row.id, stage_.dir_of(name));
  }
  const auto taken = stage_.acquire_members(name, parts);
  if (!taken.has_value() && !stage_.answers()) return taken.error();  // formed again then
  // Rewritten: the look that tells of it comes here again.
  if (!taken.has_value() && taken.error().code == ErrorCode::kUnavailable) return {};
  if (!taken.has_value()) {
    return end_evaluation(store_, row.id, EvaluationState::kLost,
                          "its checkpoints cannot be leased: " + taken.error().message);
  }
  if (row.state == EvaluationState::kFound) {  // not before: whoever is complete may be measured
    EVALCAR_RETURN_IF_ERROR(store_.transition(row.id, EvaluationState::kComplete));
  }
  log::info(fmt::format("{}: {} checkpoints from {} on", title(row), members.size(),
                        members.front().checkpoint.name),
            event_of("leased", row).with("method", stage::method_name(taken->method)));
  return store_.mark_leased(row.id, taken->dir);
}

/// What was wanted, whatever the cadence says of it now: asked for again, or cut off before its
/// lease was written down. Without files it ends.
Status Averages::take_up_unformed(std::int64_t run_id, const std::vector<Known>& all,
                                  const std::set<std::int64_t>& open) {
  state::EvaluationFilter filter;
  filter.run_id = run_id;
  filter.kind = kAverage;
  filter.states = {EvaluationState::kComplete};
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, store_.read().evaluations(filter));
  for (const state::Evaluation& row : rows) {
    if (!row.lease_path.empty() || !wanted_.matches(row)) continue;
    const auto newest = std::ranges::find_if(
        all, [&row](const Known& one) { return one.checkpoint.id == row.checkpoint_id; });
    const auto last = static_cast<std::size_t>(wanted_.average_last());
    const auto end = static_cast<std::size_t>(newest - all.begin()) + 1;
    const bool can_be = newest != all.end() && end >= last && !files_of(*newest).empty();
    if (can_be) {
      const std::span<const Known> members(&all[end - last], last);
      if (!must_wait(members, open)) EVALCAR_RETURN_IF_ERROR(lease(members, row));
      continue;
    }
    if (!stage_.answers()) return {};
    EVALCAR_RETURN_IF_ERROR(end_evaluation(store_, row.id, EvaluationState::kLost,
                                           "the files of its checkpoints are gone"));
  }
  return {};
}

/// Another evaluation of the same average (of other tasks) has this lease, and may read from it.
Result<bool> Averages::another_holds(const state::Evaluation& row, const std::string& dir) const {
  if (!stage_.holds(dir)) return false;
  state::EvaluationFilter filter;
  filter.checkpoint_id = row.checkpoint_id;
  filter.kind = row.kind;
  EVALCAR_ASSIGN_OR_RETURN(const auto others, rows_with_lease(store_.read(), filter));
  return std::any_of(others.begin(), others.end(), [&](const state::Evaluation& other) {
    return other.id != row.id && other.settings.average_last == row.settings.average_last &&
           stage_.own(other.lease_path) == stage_.own(dir);
  });
}

Result<bool> Averages::cadence_leaves_out(const state::Checkpoint& checkpoint) const {
  for (const auto& wanted : wanted_.evaluations_of(checkpoint.id, kAverage)) {
    EVALCAR_ASSIGN_OR_RETURN(
        const std::string why,
        wanted_.why_not(checkpoint.run_id, checkpoint.step, kAverage, wanted.settings.tasks));
    if (!why.empty()) return true;
  }
  return false;
}

/// Regular weights that nobody evaluates have no lease yet.
Status Averages::keep_window(const std::vector<Known>& known) {
  window_.clear();
  auto count = static_cast<std::size_t>(wanted_.average_last() - 1);
  if (!known.empty()) {  // it may turn out to be the last, whose average is wanted
    EVALCAR_ASSIGN_OR_RETURN(const bool left_out, cadence_leaves_out(known.back().checkpoint));
    if (left_out) ++count;
  }
  for (auto member = known.rbegin(); member != known.rend() && count > 0; ++member, --count) {
    window_.insert(member->lease_name());
    if (stage_.holds(stage_.dir_of(member->lease_name()))) continue;
    const auto seen = view_.complete.find({member->checkpoint.step, WeightsKind::kRegular});
    if (seen == view_.complete.end()) continue;
    const auto lease = stage_.keep(member->lease_name(), seen->second.path, seen->second.files,
                                   space_.copy_budget());
    if (!lease.has_value()) {
      spdlog::warn("{}: not kept for averages: {}", member->checkpoint.name, lease.error().message);
    }
  }
  return {};
}

Status Averages::trim(Slice& slice) {
  EVALCAR_ASSIGN_OR_RETURN(const auto needed, lease_names_of_rows(store_.read(), stage_));
  for (const std::string& name : stage_.names()) {
    const bool of_window = name.ends_with("-" + std::string(kRegular));
    if (!of_window || window_.contains(name) || needed.contains(name)) continue;
    if (kept_.may_hold(name)) continue;
    EVALCAR_RETURN_IF_ERROR(stage_.release(stage_.dir_of(name)));
    if (slice.over()) return {};
  }
  trim_due_ = false;
  return {};
}

bool Averages::keeps(const state::Evaluation& row) const {
  // Before step() looked, any of them may be a member of what comes; it lets go what is not.
  return row.kind == kRegular && keeps_name(lease_name_of(row.step, row.generation, row.kind));
}

Result<std::vector<std::string>> Averages::window_of(std::int64_t run_id) const {
  std::vector<std::string> names;
  if (wanted_.average_last() == 0) return names;
  EVALCAR_ASSIGN_OR_RETURN(const auto all, known(run_id));
  // One more than the window: an average may not have been formed before the process ended.
  auto count = static_cast<std::size_t>(wanted_.average_last());
  for (auto member = all.rbegin(); member != all.rend() && count > 0; ++member, --count) {
    names.push_back(member->lease_name());
  }
  return names;
}

Result<bool> Averages::give_up_window(std::int64_t run_id) {
  EVALCAR_ASSIGN_OR_RETURN(const auto needed, lease_names_of_rows(store_.read(), stage_));
  EVALCAR_ASSIGN_OR_RETURN(const auto names, window_of(run_id));
  bool any = false;
  for (const std::string& name : names) {
    if (needed.contains(name) || kept_.may_hold(name)) continue;
    if (!stage_.holds(stage_.dir_of(name))) continue;
    EVALCAR_RETURN_IF_ERROR(stage_.release(stage_.dir_of(name)));
    any = true;
  }
  if (any) {
    spdlog::warn("disk space is short: checkpoints kept for averages to come were given up");
  }
  return any;
}

}  // namespace evalcar::run
