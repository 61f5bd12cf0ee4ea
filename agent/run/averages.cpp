#include "agent/run/averages.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "agent/run/kinds.h"
#include "agent/run/rows.h"

namespace evalcar::run {

using state::EvaluationState;

namespace {
constexpr const char* kIsGone = " is gone";
constexpr const char* kAllGone = "the files of its checkpoints are gone";
constexpr const char* kNotLinked = "its checkpoints cannot be leased: ";
/// Of one whose members cannot be linked now: for two and a half minutes in all.
constexpr int kMostTries = 6;
constexpr std::chrono::seconds kFirstPause{5};
constexpr MonotonicTime kInThisLook = MonotonicTime::max();

/// Ended because members were not there or could not be linked: they may be there again.
bool lacked_members(const state::Evaluation& row) {
  return row.state == EvaluationState::kLost &&
         (row.reason.ends_with(kIsGone) || row.reason == kAllGone ||
          row.reason.starts_with(kNotLinked));
}

}  // namespace

Averages::Averages(const Clock& clock, state::Store& store, stage::Stage& stage,
                   const Wanted& wanted, const DiskSpace& space, const DiskView& view,
                   const KeptForBest& kept)
    : clock_(clock),
      store_(store),
      stage_(stage),
      wanted_(wanted),
      members_(store, stage, view),
      window_(clock, store, stage, wanted, space, view, kept, members_) {}

bool Averages::keeps_name(const std::string& name) const {
  if (wanted_.average_last() == 0) return false;
  return due_ || window_.contains(name);
}

void Averages::forget() {
  look_again();
  window_.forget();
  refused_.clear();
  given_up_.clear();
}

Status Averages::step(std::int64_t run_id, const std::set<std::int64_t>& torn, Slice& slice) {
  for (auto& [row, refused] : refused_) {
    if (refused.again > clock_.monotonic_now()) continue;
    refused.again = kInThisLook;
    look_again();
  }
  if (wanted_.average_last() == 0) window_.forget_tries();
  const auto retry = window_.retry_due();
  if (retry.has_value() && *retry <= clock_.monotonic_now()) look_again();
  if (!due()) return {};
  if (due_) {
    EVALCAR_ASSIGN_OR_RETURN(const auto all, members_.known(run_id));
    const std::set<std::int64_t> open = members_.open_steps(torn);
    EVALCAR_ASSIGN_OR_RETURN(const auto unformed, window_.unformed_steps(run_id));
    window_.renew(all, open, unformed);
    for (const auto& [row, refused] : refused_) window_.add(refused.members);
    EVALCAR_RETURN_IF_ERROR(form_all(all, open, slice));
    if (slice.was_cut()) return {};
    EVALCAR_RETURN_IF_ERROR(take_up_unformed(run_id, all, open));
    // Members of one that is formed, or never will be, need not stay for it.
    EVALCAR_ASSIGN_OR_RETURN(const auto still_unformed, window_.unformed_steps(run_id));
    look_once_more_ |= still_unformed != unformed;
    look_once_more_ |= std::erase_if(refused_, [](const auto& one) {
                         return one.second.again == kInThisLook;
                       }) > 0;
    due_ = std::exchange(look_once_more_, false);
    window_.close_look();
    formed_.clear();
  }
  return window_.trim(slice);
}

/// For one of them that is being written anew, or one between them that may still become complete.
bool Averages::must_wait(std::span<const AverageMember> members,
                         const std::set<std::int64_t>& open) {
  const auto waits = open.lower_bound(members.front().checkpoint.step);
  return waits != open.end() && *waits <= members.back().checkpoint.step;
}

/// Newest first; `open`: steps that may still become complete.
Status Averages::form_all(const std::vector<AverageMember>& all, const std::set<std::int64_t>& open,
                          Slice& slice) {
  const auto last = static_cast<std::size_t>(wanted_.average_last());
  for (std::size_t end = all.size(); end >= last; --end) {
    const std::span<const AverageMember> members(&all[end - last], last);
    const std::string name = members.back().lease_name();
    if (formed_.contains(name)) continue;
    if (slice.was_cut()) return {};
    if (!must_wait(members, open) && !members_.files_of(members.back()).empty()) {
      EVALCAR_RETURN_IF_ERROR(form(members));
    }
    formed_.insert(name);
    (void)slice.over();
  }
  return {};
}

/// `members`: oldest first; the files of the last one are there.
Status Averages::form(std::span<const AverageMember> members) {
  for (const auto& wanted : wanted_.evaluations_of(members.back().checkpoint.id, kAverage)) {
    EVALCAR_RETURN_IF_ERROR(form(members, wanted));
  }
  return {};
}

Status Averages::form(std::span<const AverageMember> members, const state::NewEvaluation& wanted) {
  const state::Checkpoint& newest = members.back().checkpoint;
  EVALCAR_ASSIGN_OR_RETURN(
      const std::string unwanted,
      wanted_.why_not(newest.run_id, newest.step, kAverage, wanted.settings.tasks));
  if (!unwanted.empty()) return {};
  EVALCAR_ASSIGN_OR_RETURN(const state::Evaluation row, store_.plan_evaluation(wanted));
  return lease(members, row);
}

Status Averages::lease(std::span<const AverageMember> members, const state::Evaluation& row) {
  const state::Checkpoint& newest = members.back().checkpoint;
  // A configuration that did not want it, and one that does again; or a member that was gone, and
  // has come back whole.
  const bool revived =
      (row.state == EvaluationState::kSkipped || lacked_members(row)) && revivable(row);
  if (row.state != EvaluationState::kFound && row.state != EvaluationState::kComplete && !revived) {
    return {};
  }
  if (row.state == EvaluationState::kComplete && stage_.holds(row.lease_path)) return {};
  if (waits_for_retry(row) || (revived && given_up_.contains(row.id))) return {};
  std::vector<stage::Member> parts;
  for (const AverageMember& member : members) {
    if (const auto why = why_of_another_training(member, members.back()); !why.empty()) {
      if (revived) return {};
      return end_evaluation(
          store_, row.id, EvaluationState::kSkipped,
          "the average of " + std::to_string(members.size()) + " checkpoints: " + why);
    }
    const std::string dir = members_.files_of(member);
    if (dir.empty() && (revived || !stage_.answers())) return {};
    if (dir.empty()) {
      return end_evaluation(store_, row.id, EvaluationState::kLost,
                            "the average of " + std::to_string(members.size()) +
                                " checkpoints: " + member.checkpoint.name + kIsGone);
    }
    parts.push_back({std::to_string(member.checkpoint.step), dir, member.files});
  }
  const std::string name = lease_name_of(newest.step, newest.generation, kAverage);
  EVALCAR_ASSIGN_OR_RETURN(const bool shared, another_holds(row, stage_.dir_of(name)));
  const auto make_complete = [&]() -> Status {
    if (row.state == EvaluationState::kComplete) return {};
    return store_.transition(row.id, EvaluationState::kComplete);
  };
  if (shared) {
    EVALCAR_RETURN_IF_ERROR(make_complete());
    return store_.mark_leased(row.id, stage_.dir_of(name));
  }
  const auto taken = stage_.acquire_members(name, parts);
  if (!taken.has_value() && !stage_.answers()) return taken.error();  // formed again then
  // Rewritten: the look that tells of it comes here again.
  if (!taken.has_value() && taken.error().code == ErrorCode::kUnavailable) return {};
  if (!taken.has_value() && taken.error().retryable && note_refusal(members, row)) {
    spdlog::warn("{}: cannot be leased now, and is tried again: {}", title(row),
                 taken.error().message);
    return {};
  }
  look_once_more_ |= refused_.erase(row.id) > 0;  // its members need not stay for it
  if (!taken.has_value()) {
    given_up_.insert(row.id);
    if (revived) return {};
    return end_evaluation(store_, row.id, EvaluationState::kLost,
                          kNotLinked + taken.error().message);
  }
  // What was in the way of others may be over, too.
  look_once_more_ |= !std::exchange(given_up_, {}).empty();
  EVALCAR_RETURN_IF_ERROR(make_complete());  // not before: whoever is complete may be measured
  std::string names;
  for (const AverageMember& member : members) {
    names += (names.empty() ? "" : ", ") + member.checkpoint.name;
  }
  log::info(fmt::format("{}: the mean of {}", title(row), names),
            event_of("leased", row).with("method", stage::method_name(taken->method)));
  return store_.mark_leased(row.id, taken->dir);
}

/// The disk is full, a limit was reached: true, it is tried again later, and its members stay until
/// then. Not for ever.
bool Averages::note_refusal(std::span<const AverageMember> members, const state::Evaluation& row) {
  Refused& refused = refused_[row.id];
  if (++refused.tries >= kMostTries) return false;
  refused.again = clock_.monotonic_now() + kFirstPause * (1 << (refused.tries - 1));
  refused.members.clear();
  for (const AverageMember& member : members) refused.members.insert(member.lease_name());
  window_.add(refused.members);
  return true;
}

bool Averages::waits_for_retry(const state::Evaluation& row) const {
  const auto found = refused_.find(row.id);
  return found != refused_.end() && found->second.again != kInThisLook;
}

bool Averages::tries_again() const {
  return std::ranges::any_of(refused_,
                             [](const auto& one) { return one.second.again != kInThisLook; });
}

std::optional<MonotonicTime> Averages::retry_due() const {
  std::optional<MonotonicTime> due = window_.retry_due();
  for (const auto& [row, refused] : refused_) {
    if (refused.again != kInThisLook) due = std::min(due.value_or(refused.again), refused.again);
  }
  return due;
}

/// What was wanted, whatever the cadence says of it now: asked for again, or cut off before its
/// lease was written down. Without files it ends.
Status Averages::take_up_unformed(std::int64_t run_id, const std::vector<AverageMember>& all,
                                  const std::set<std::int64_t>& open) {
  state::EvaluationFilter filter;
  filter.run_id = run_id;
  filter.kind = kAverage;
  filter.states = {EvaluationState::kFound, EvaluationState::kComplete};
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, store_.read().evaluations(filter));
  for (const state::Evaluation& row : rows) {
    if (!row.lease_path.empty() || !wanted_.matches(row) || waits_for_retry(row)) continue;
    const auto newest = std::ranges::find_if(
        all, [&row](const AverageMember& one) { return one.checkpoint.id == row.checkpoint_id; });
    const auto last = static_cast<std::size_t>(wanted_.average_last());
    const auto end = static_cast<std::size_t>(newest - all.begin()) + 1;
    const bool can_be = newest != all.end() && end >= last && !members_.files_of(*newest).empty();
    if (can_be) {
      const std::span<const AverageMember> members(&all[end - last], last);
      if (!must_wait(members, open)) EVALCAR_RETURN_IF_ERROR(lease(members, row));
      continue;
    }
    if (!stage_.answers()) return {};
    // An older one that still comes may make up their number.
    if (newest != all.end() && !open.empty() && *open.begin() <= row.step) continue;
    EVALCAR_RETURN_IF_ERROR(end_evaluation(store_, row.id, EvaluationState::kLost, kAllGone));
  }
  return {};
}

/// Another evaluation of the same average (of other tasks) has this lease, and may read from it.
Result<bool> Averages::another_holds(const state::Evaluation& row, const std::string& dir) const {
  if (!stage_.holds(dir) || !stage_.reopen(dir, dir, {}, {}).has_value() ||
      !check_number_of_members(stage_, dir, row).has_value()) {
    return false;
  }
  state::EvaluationFilter filter;
  filter.checkpoint_id = row.checkpoint_id;
  filter.kind = row.kind;
  EVALCAR_ASSIGN_OR_RETURN(const auto others, rows_with_lease(store_.read(), filter));
  return std::any_of(others.begin(), others.end(), [&](const state::Evaluation& other) {
    return other.id != row.id && other.settings.average_last == row.settings.average_last &&
           stage_.own(other.lease_path) == stage_.own(dir);
  });
}

bool Averages::keeps(const state::Evaluation& row) const {
  // Before step() looked, any of them may be a member of what comes; it lets go what is not.
  return row.kind == kRegular && keeps_name(lease_name_of(row.step, row.generation, row.kind));
}

}  // namespace evalcar::run
