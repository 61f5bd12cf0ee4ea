#include "agent/run/average_members.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "agent/run/kinds.h"
#include "agent/run/rows.h"
#include "store/base/clock.h"

namespace evalcar::run {

using checkpoint::WeightsKind;

namespace {

std::int64_t youngest(const std::vector<state::FileIdentity>& files) {
  std::int64_t mtime_ns = 0;
  for (const state::FileIdentity& file : files) mtime_ns = std::max(mtime_ns, file.mtime_ns);
  return mtime_ns;
}

/// When a checkpoint came, by all that tells it: rows are made anew where the database was lost and
/// late where it took nothing, the wall clock is set back, and copies have times of their own.
struct Arrival {
  std::string seen_at;
  std::int64_t row = 0;
  std::int64_t mtime_ns = 0;

  void take_later(const Arrival& other) {
    seen_at = std::max(seen_at, other.seen_at);
    row = std::max(row, other.row);
    mtime_ns = std::max(mtime_ns, other.mtime_ns);
  }
};

/// Whether files of `mtime_ns`, in a checkpoint of this row, were written when `other` was known.
/// By its time on disk, too: where a whole run is copied, all of it is seen anew, in any order.
bool came_after(std::int64_t row, std::int64_t mtime_ns, const AverageMember& other) {
  const WallTime written{
      std::chrono::floor<WallTime::duration>(std::chrono::nanoseconds(mtime_ns))};
  return row > other.checkpoint.id && mtime_ns > youngest(other.files) &&
         format_utc(written) > other.checkpoint.seen_at;
}

/// Sets AverageMember::left_behind and older_line; `members` by step.
void tell_left_behind(std::vector<AverageMember>& members) {
  Arrival latest;  // of the steps below
  Arrival anew;    // of those among them that were there before
  for (AverageMember& member : members) {
    const state::Checkpoint& checkpoint = member.checkpoint;
    const std::int64_t mtime_ns = youngest(member.files);
    // At a start both are of one moment: what went before it is marked before what came.
    member.left_behind = !checkpoint.gone_at.empty() && latest.seen_at >= checkpoint.gone_at &&
                         latest.row > checkpoint.id && latest.mtime_ns > mtime_ns;
    member.older_line = member.left_behind || came_after(anew.row, anew.mtime_ns, member);
    const Arrival own{checkpoint.seen_at, checkpoint.id, mtime_ns};
    latest.take_later(own);
    if (checkpoint.generation > 1) anew.take_later(own);
  }
}

}  // namespace

std::string AverageMember::lease_name() const {
  return lease_name_of(checkpoint.step, checkpoint.generation, kRegular);
}

Result<std::vector<AverageMember>> AverageMembers::known(std::int64_t run_id) const {
  EVALCAR_ASSIGN_OR_RETURN(auto kinds, store_.read().known_kinds(run_id));
  EVALCAR_ASSIGN_OR_RETURN(const auto checkpoints, store_.read().checkpoints(run_id));
  std::map<std::string, const state::Checkpoint*> newest;  // by name; generations ascend
  for (const state::Checkpoint& checkpoint : checkpoints) newest[checkpoint.name] = &checkpoint;
  std::vector<AverageMember> found;
  for (state::KnownKind& kind : kinds) {
    const state::Checkpoint& checkpoint = *newest.at(kind.name);
    if (kind.kind != kRegular || is_snapshot(checkpoint)) continue;
    // What is known is of an older save: the newest one's weights may still come.
    if (kind.generation != checkpoint.generation) continue;
    found.push_back({checkpoint, std::move(kind.files)});
  }
  tell_left_behind(found);
  return found;
}

std::string why_of_another_training(const AverageMember& member, const AverageMember& newest) {
  const state::Checkpoint& checkpoint = member.checkpoint;
  if (member.left_behind) {
    return checkpoint.name + " was left behind when training was resumed from before it";
  }
  const bool anew =
      checkpoint.generation > 1 && came_after(checkpoint.id, youngest(member.files), newest);
  if (!anew) return "";
  return checkpoint.name + " was written anew after " + newest.checkpoint.name +
         ": training was resumed from before it";
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
