#include "agent/run/average_members.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "agent/run/rows.h"

namespace evalcar::run {

using checkpoint::WeightsKind;

namespace {

constexpr const char* kRegular = "regular";

/// Tells what AverageMember::left_behind says.
class LeftBehind {
 public:
  explicit LeftBehind(const std::vector<state::Checkpoint>& checkpoints) {
    for (const state::Checkpoint& checkpoint : checkpoints) {
      if (is_snapshot(checkpoint)) continue;
      const auto known = seen_up_to_.emplace(checkpoint.step, checkpoint.seen_at).first;
      known->second = std::min(known->second, checkpoint.seen_at);
    }
    std::string latest;
    for (auto& [step, seen_at] : seen_up_to_) latest = seen_at = std::max(latest, seen_at);
  }
  bool holds(const state::Checkpoint& checkpoint) const {
    const auto here = seen_up_to_.lower_bound(checkpoint.step);
    if (checkpoint.gone_at.empty() || here == seen_up_to_.begin()) return false;
    return std::prev(here)->second > checkpoint.gone_at;
  }

 private:
  /// By step: when the last one of it and of lower steps was first seen.
  std::map<std::int64_t, std::string> seen_up_to_;
};

}  // namespace

std::string AverageMember::lease_name() const {
  return lease_name_of(checkpoint.step, checkpoint.generation, kRegular);
}

Result<std::vector<AverageMember>> AverageMembers::known(std::int64_t run_id) const {
  EVALCAR_ASSIGN_OR_RETURN(auto kinds, store_.read().known_kinds(run_id));
  EVALCAR_ASSIGN_OR_RETURN(const auto checkpoints, store_.read().checkpoints(run_id));
  std::map<std::string, const state::Checkpoint*> newest;  // by name; generations ascend
  for (const state::Checkpoint& checkpoint : checkpoints) newest[checkpoint.name] = &checkpoint;
  const LeftBehind left_behind(checkpoints);
  std::vector<AverageMember> found;
  for (state::KnownKind& kind : kinds) {
    const state::Checkpoint& checkpoint = *newest.at(kind.name);
    if (kind.kind != kRegular || is_snapshot(checkpoint)) continue;
    // What is known is of an older save: the newest one's weights may still come.
    if (kind.generation != checkpoint.generation) continue;
    found.push_back({checkpoint, std::move(kind.files), left_behind.holds(checkpoint)});
  }
  return found;
}

bool AverageMembers::is_held(const AverageMember& member) const {
  const std::string lease = stage_.dir_of(member.lease_name());
  return stage_.holds(lease) && stage_.check_against(lease, member.files).has_value();
}

std::string AverageMembers::files_of(const AverageMember& member) const {
  if (is_held(member)) return stage_.dir_of(member.lease_name());
  const bool there = view_.complete.contains({member.checkpoint.step, WeightsKind::kRegular});
  return there ? member.checkpoint.path : "";
}

std::set<std::int64_t> AverageMembers::open_steps(const std::set<std::int64_t>& torn) const {
  std::set<std::int64_t> open;
  for (const auto& [key, told] : view_.told) {
    const auto& [step, kind] = key;
    const bool waits = kind == WeightsKind::kRegular && told.verdict == watch::Verdict::kWaiting;
    if (waits && view_.present.contains(step) && !torn.contains(step)) open.insert(step);
  }
  return open;
}

}  // namespace evalcar::run
