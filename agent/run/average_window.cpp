#include "agent/run/average_window.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "agent/run/kinds.h"
#include "agent/run/rows.h"

namespace evalcar::run {

using checkpoint::WeightsKind;
using state::EvaluationState;

namespace {

/// Between two tries to keep a checkpoint for averages to come.
constexpr std::chrono::seconds kKeepPause{30};
constexpr std::chrono::seconds kLongestKeepPause{600};

constexpr std::size_t kMostOpen = 4;

}  // namespace

std::set<std::size_t> members_to_come(const std::vector<std::int64_t>& steps,
                                      const std::set<std::int64_t>& open, std::size_t last,
                                      std::size_t newest) {
  std::set<std::size_t> members;
  const auto add = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < std::min(end, steps.size()); ++i) members.insert(i);
  };
  add(steps.size() - std::min(newest, steps.size()), steps.size());
  std::size_t looked = 0;
  for (auto step = open.rbegin(); step != open.rend() && looked < kMostOpen; ++step, ++looked) {
    const auto behind = std::ranges::upper_bound(steps, *step) - steps.begin();
    const auto place = static_cast<std::size_t>(behind);
    // It may be one of them itself, about to become another.
    add(place - std::min(last, place), place + last - 1);
  }
  return members;
}

/// Those that averages to come may have as members. `open`: steps that may still become complete,
/// or whose average is yet to be formed.
std::vector<const AverageMember*> AverageWindow::to_come(const std::vector<AverageMember>& all,
                                                         const std::set<std::int64_t>& open) const {
  const auto last = static_cast<std::size_t>(wanted_.average_last());
  const auto newest = static_cast<std::size_t>(wanted_.average_window());
  std::set<const AverageMember*> found;
  for (const bool with_older_line : {true, false}) {
    std::vector<const AverageMember*> candidates;
    std::vector<std::int64_t> steps;
    for (const AverageMember& one : all) {
      if (one.older_line && !with_older_line) continue;
      candidates.push_back(&one);
      steps.push_back(one.checkpoint.step);
    }
    for (const std::size_t index : members_to_come(steps, open, last, newest)) {
      found.insert(candidates[index]);
    }
  }
  return {found.begin(), found.end()};
}

AverageWindow::AverageWindow(const Clock& clock, const state::Store& store, stage::Stage& stage,
                             const Wanted& wanted, const DiskSpace& space, const DiskView& view,
                             const KeptForBest& kept, const AverageMembers& members)
    : clock_(clock),
      store_(store),
      stage_(stage),
      wanted_(wanted),
      space_(space),
      view_(view),
      kept_(kept),
      members_(members) {}

void AverageWindow::forget() {
  names_.clear();
  tries_.clear();
  looked_ = false;
}

std::optional<MonotonicTime> AverageWindow::retry_due() const {
  std::optional<MonotonicTime> due;
  for (const auto& [name, attempt] : tries_)
    due = std::min(due.value_or(attempt.next), attempt.next);
  return due;
}

/// Regular weights that nobody evaluates have no lease yet.
void AverageWindow::renew(const std::vector<AverageMember>& known, std::set<std::int64_t> open,
                          const std::set<std::int64_t>& unformed) {
  if (wanted_.average_window() == 0) open.clear();  // of those that come none is wanted
  open.insert(unformed.begin(), unformed.end());
  names_.clear();
  const auto before = std::exchange(tries_, {});
  for (const AverageMember* const member : to_come(known, open)) {
    names_.insert(member->lease_name());
    const auto tried = before.find(member->lease_name());
    keep(*member, tried == before.end() ? Try{} : tried->second);
  }
}

void AverageWindow::keep(const AverageMember& member, Try attempt) {
  if (members_.is_held(member)) return;
  const auto seen = view_.complete.find({member.checkpoint.step, WeightsKind::kRegular});
  if (seen == view_.complete.end()) return;
  const std::string name = member.lease_name();
  // A link is tried at every look; a copy takes the trainer's disk, and one that fails, or that the
  // guard gave up, is not begun again at once.
  const bool may_copy = attempt.next <= clock_.monotonic_now();
  const auto lease = stage_.keep(name, seen->second.path, seen->second.files,
                                 may_copy ? space_.spare_copy_budget(stage_) : 0);
  if (lease.has_value()) return;
  spdlog::warn("{}: not kept for averages: {}", member.checkpoint.name, lease.error().message);
  // Every look tries; where nothing is a reason to look, so does this.
  if (const MonotonicTime now = clock_.monotonic_now(); attempt.next <= now) {
    constexpr int kMostDoublings = 5;
    const auto pause = kKeepPause * (1 << std::min(attempt.tries++, kMostDoublings));
    attempt.next = now + std::min(pause, kLongestKeepPause);
  }
  tries_[name] = attempt;
}

Status AverageWindow::trim(Slice& slice) {
  EVALCAR_ASSIGN_OR_RETURN(const auto needed, lease_names_of_rows(store_.read(), stage_));
  for (const std::string& name : stage_.names()) {
    const bool of_window = name.ends_with("-" + std::string(kRegular));
    if (!of_window || names_.contains(name) || needed.contains(name)) continue;
    if (kept_.may_hold(name)) continue;
    if (const Status released = stage_.release(stage_.dir_of(name)); !released.has_value()) {
      spdlog::warn("{}", released.error().message);  // a leftover: removed later
    }
    if (slice.over()) return {};
  }
  trim_due_ = false;
  return {};
}

Result<std::vector<std::string>> AverageWindow::names(std::int64_t run_id) const {
  std::vector<std::string> found;
  if (wanted_.average_last() == 0) return found;
  EVALCAR_ASSIGN_OR_RETURN(const auto all, members_.known(run_id));
  found.assign(names_.begin(), names_.end());
  std::set<std::int64_t> open;
  if (!looked_) {
    EVALCAR_ASSIGN_OR_RETURN(open, unformed_steps(run_id));
  }
  if (!looked_ && wanted_.average_window() > 0) {
    EVALCAR_ASSIGN_OR_RETURN(auto unknown, unknown_steps(run_id, all));
    open.merge(unknown);
    EVALCAR_ASSIGN_OR_RETURN(const auto unfinished, store_.read().unfinished(run_id));
    for (const state::UnfinishedFolder& folder : unfinished) open.insert(folder.step);
  }
  for (const AverageMember* const member : to_come(all, open))
    found.push_back(member->lease_name());
  return found;
}

/// Of checkpoints that were not removed and whose regular weights were never whole, as the rows
/// tell: before the first look anything that is not known to be over may still come.
Result<std::set<std::int64_t>> AverageWindow::unknown_steps(
    std::int64_t run_id, const std::vector<AverageMember>& all) const {
  EVALCAR_ASSIGN_OR_RETURN(const auto checkpoints, store_.read().checkpoints(run_id));
  std::set<std::int64_t> steps;
  for (const state::Checkpoint& checkpoint : checkpoints) {
    if (checkpoint.gone_at.empty() && !is_snapshot(checkpoint)) steps.insert(checkpoint.step);
  }
  for (const AverageMember& one : all) steps.erase(one.checkpoint.step);
  return steps;
}

/// Of averages that were planned and have no lease: the steps that they are of.
Result<std::set<std::int64_t>> AverageWindow::unformed_steps(std::int64_t run_id) const {
  state::EvaluationFilter filter;
  filter.run_id = run_id;
  filter.kind = kAverage;
  filter.states = {EvaluationState::kFound, EvaluationState::kComplete};
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, store_.read().evaluations(filter));
  std::set<std::int64_t> steps;
  for (const state::Evaluation& row : rows) {
    if (row.lease_path.empty()) steps.insert(row.step);
  }
  return steps;
}

Result<bool> AverageWindow::give_up(std::int64_t run_id) {
  EVALCAR_ASSIGN_OR_RETURN(const auto needed, lease_names_of_rows(store_.read(), stage_));
  EVALCAR_ASSIGN_OR_RETURN(const auto window, names(run_id));
  const stage::Held held = stage_.held();
  bool any = false;
  for (const std::string& name : window) {
    if (needed.contains(name) || kept_.may_hold(name)) continue;
    if (held.bytes_of(name) == 0) continue;  // not there, or the trainer has the files itself
    if (const Status released = stage_.release(stage_.dir_of(name)); !released.has_value()) {
      spdlog::warn("{}", released.error().message);  // a leftover: removed later
      continue;
    }
    any = true;
    tries_[name].next = clock_.monotonic_now() + kKeepPause;
  }
  if (any) {
    spdlog::warn("disk space is short: checkpoints kept for averages to come were given up");
  }
  return any;
}

}  // namespace evalcar::run
