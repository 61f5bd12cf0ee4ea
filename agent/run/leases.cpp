#include "agent/run/leases.h"

#include <spdlog/spdlog.h>

#include "agent/run/kinds.h"
#include "agent/run/rows.h"

namespace evalcar::run {

using state::EvaluationState;

Leases::Leases(const Clock& clock, state::Store& store, stage::Stage& stage,
               watch::Watcher& watcher, const DiskSpace& space, Averages& averages, BestKept& best,
               const DiskView& view)
    : clock_(clock),
      store_(store),
      stage_(stage),
      watcher_(watcher),
      space_(space),
      averages_(averages),
      best_(best),
      view_(view) {}

/// The lease that another evaluation of these weights holds, if it is whole: it may be read from
/// now, so it is never made anew.
Result<std::optional<stage::Lease>> Leases::lease_of_another(const state::Evaluation& row) const {
  state::EvaluationFilter filter;
  filter.checkpoint_id = row.checkpoint_id;
  filter.kind = row.kind;
  EVALCAR_ASSIGN_OR_RETURN(const auto others, rows_with_lease(store_.read(), filter));
  for (const state::Evaluation& other : others) {
    if (other.id == row.id || !stage_.holds(other.lease_path)) continue;
    EVALCAR_ASSIGN_OR_RETURN(const auto judged,
                             store_.read().files_of(row.checkpoint_id, row.kind));
    auto lease = stage_.reopen(other.lease_path, row.checkpoint_path, {}, judged);
    if (lease.has_value()) return std::optional(std::move(lease).value());
  }
  return std::optional<stage::Lease>();
}

/// The lease of these weights that is there for another reason: as one of the best, for averages.
Result<std::optional<stage::Lease>> Leases::lease_without_row(const state::Evaluation& row) const {
  const std::string dir = stage_.dir_of(lease_name_of(row.step, row.generation, row.kind));
  if (row.kind == kAverage || !stage_.holds(dir)) return std::optional<stage::Lease>();
  EVALCAR_ASSIGN_OR_RETURN(const auto judged, store_.read().files_of(row.checkpoint_id, row.kind));
  if (judged.empty()) return std::optional<stage::Lease>();
  auto lease = stage_.reopen(dir, row.checkpoint_path, {}, judged);
  if (!lease.has_value()) return std::optional<stage::Lease>();
  return std::optional(std::move(lease).value());
}

Result<bool> Leases::revive_from_kept(const state::Evaluation& row) {
  EVALCAR_ASSIGN_OR_RETURN(auto lease, lease_without_row(row));
  if (!lease.has_value()) return false;
  EVALCAR_RETURN_IF_ERROR(store_.transition(row.id, EvaluationState::kComplete));
  EVALCAR_RETURN_IF_ERROR(store_.mark_leased(row.id, lease->dir));
  held_[row.id] = std::move(*lease);
  return true;
}

Status Leases::take(const state::Evaluation& row, const watch::Sighting& seen) {
  EVALCAR_ASSIGN_OR_RETURN(auto shared, lease_of_another(row));
  if (shared.has_value()) {
    EVALCAR_RETURN_IF_ERROR(store_.mark_leased(row.id, shared->dir));
    held_[row.id] = std::move(*shared);
    return {};
  }
  const std::string name = lease_name_of(row.step, row.generation, row.kind);
  // What hold() took, or a call that was cut off behind it: made anew, its files could go between.
  auto lease = stage_.holding(name, seen.files);
  if (!lease.has_value()) lease = stage_.acquire(name, seen.path, seen.files, space_.copy_budget());
  if (lease.has_value()) {
    EVALCAR_RETURN_IF_ERROR(store_.mark_leased(row.id, lease->dir));
    const std::string_view how = stage::method_name(lease->method);
    log::info(fmt::format("{}: leased ({})", title(row), how),
              event_of("leased", row).with("method", how));
    if (lease->may_be_kept) exposed_.insert(row.id);
    held_[row.id] = std::move(lease).value();
    return {};
  }
  if (lease.error().code == ErrorCode::kNotFound) {
    // A copy that could not be written down before they went.
    EVALCAR_ASSIGN_OR_RETURN(auto kept, lease_without_row(row));
    if (kept.has_value() && stage_.is_of(name, seen.files)) {
      EVALCAR_RETURN_IF_ERROR(store_.mark_leased(row.id, kept->dir));
      log::info(title(row) + ": leased before it was removed", event_of("leased", row));
      held_[row.id] = std::move(*kept);
      return {};
    }
    if (!stage_.answers()) return lease.error();
    return end_evaluation(store_, row.id, EvaluationState::kLost,
                          "removed before it could be leased: " + lease.error().message);
  }
  if (!stage_.answers()) return lease.error();          // it is told again, and tried again
  if (lease.error().code == ErrorCode::kUnavailable) {  // the next look tells what it has become
    watcher_.rescan();
    return store_.set_reason(row.id, lease.error().message);
  }
  return lease.error();
}

bool Leases::is_held(const watch::Sighting& seen) const {
  const auto found = unrecorded_.find({seen.step, seen.kind});
  return found != unrecorded_.end() && found->second.fingerprint == seen.fingerprint;
}

std::optional<Leases::FolderId> Leases::held_from(const watch::Sighting& seen) const {
  if (!is_held(seen)) return std::nullopt;
  return unrecorded_.at({seen.step, seen.kind}).folder;
}

bool Leases::may_hold() {
  const auto free = space_.free_bytes();
  if (!free.has_value()) return false;
  if (*free >= space_.min_free()) return true;
  std::erase_if(unrecorded_, [this](const auto& held) {
    const auto needed = needs_lease(store_.read(), stage_, held.second.name);
    if (!needed.has_value()) return false;
    if (!*needed) (void)stage_.release(stage_.dir_of(held.second.name));
    return true;
  });
  return false;
}

void Leases::hold(const watch::Sighting& seen, const std::string& name, FolderId folder) {
  constexpr std::uint64_t kNoCopies = 0;
  const auto before = unrecorded_.find({seen.step, seen.kind});
  if (before != unrecorded_.end()) {  // rewritten since
    if (before->second.name != name) best_.let_go(before->second.name);
    unrecorded_.erase(before);
  }
  if (!stage_.holding(name, seen.files).has_value()) {
    // What is there of that name is a row's or a copy, or a part, or of a save before this one.
    const auto needed = needs_lease(store_.read(), stage_, name);
    if (!needed.has_value() || *needed || stage_.is_of(name, seen.files)) return;
    if (!stage_.keep(name, seen.path, seen.files, kNoCopies).has_value()) {
      return best_.let_go(name);  // what it was before may be there
    }
  }
  spdlog::info("{}: cannot be recorded now; its files are kept until it is", seen.folder);
  unrecorded_[{seen.step, seen.kind}] = {name, seen.fingerprint, folder};
}

void Leases::settle(const watch::Sighting& seen) {
  const auto found = unrecorded_.find({seen.step, seen.kind});
  if (found == unrecorded_.end()) return;
  best_.let_go(found->second.name);
  unrecorded_.erase(found);
}

Status Leases::refer(const state::Evaluation& row, const std::string& dir) {
  const std::string name = lease_name_of(row.step, row.generation, row.kind);
  EVALCAR_RETURN_IF_ERROR(stage_.refer(name, dir));
  return store_.mark_leased(row.id, stage_.dir_of(name));
}

/// After `evalcar retry` a row is complete again and still has its lease.
Result<std::optional<stage::Lease>> Leases::take_up(const state::Evaluation& row,
                                                    stage::Lease lease) {
  if (row.state == EvaluationState::kComplete) {
    EVALCAR_RETURN_IF_ERROR(store_.mark_leased(row.id, lease.dir));
  }
  return std::optional(std::move(lease));
}

/// A lease that a process before this one took, if it is still what that one leased.
Result<stage::Lease> Leases::reopen(const state::Evaluation& row,
                                    const std::vector<std::string>& in_place) const {
  EVALCAR_ASSIGN_OR_RETURN(const auto judged, store_.read().files_of(row.checkpoint_id, row.kind));
  EVALCAR_ASSIGN_OR_RETURN(auto lease,
                           stage_.reopen(row.lease_path, row.checkpoint_path, in_place, judged));
  if (row.kind == kAverage) {
    EVALCAR_RETURN_IF_ERROR(check_number_of_members(stage_, lease.dir, row));
  }
  return lease;
}

/// An average whose lease cannot be used is formed again of what there is, as one that had none.
Status Leases::form_again(const state::Evaluation& row, const std::string& why) {
  if (row.state != EvaluationState::kComplete) {
    if (row.state != EvaluationState::kFailed) {
      EVALCAR_RETURN_IF_ERROR(store_.transition(row.id, EvaluationState::kFailed, why));
    }
    EVALCAR_RETURN_IF_ERROR(store_.transition(row.id, EvaluationState::kComplete, why));
  }
  release(row);  // not before: without a lease and not complete nobody would form it
  averages_.look_again();
  return {};
}

Result<std::optional<stage::Lease>> Leases::of(const state::Evaluation& row) {
  const auto held = held_.find(row.id);
  if (held != held_.end()) {
    const stage::Integrity integrity = stage_.check(held->second);
    if (integrity <= stage::Integrity::kOnlyCtime) return take_up(row, held->second);
    if (integrity == stage::Integrity::kUnknown) return std::optional<stage::Lease>();
  }
  const auto kind = checkpoint::weights_kind_from_name(row.kind);
  // An average is nowhere but in its lease.
  const watch::Sighting* const seen =
      kind.has_value() ? view_.whole_in(row.checkpoint_path, {row.step, *kind}) : nullptr;
  std::string why_lost = "its files are gone, from the checkpoint and from the lease";
  std::vector<std::string> in_place;
  if (seen != nullptr) {
    for (const watch::WatchedFile& file : seen->files) in_place.push_back(file.relative);
  }
  if (!row.lease_path.empty() && held == held_.end()) {  // taken by a process before this one
    auto lease = reopen(row, in_place);
    if (lease.has_value()) {
      held_[row.id] = *lease;
      return take_up(row, std::move(lease).value());
    }
    if (!stage_.answers()) return std::optional<stage::Lease>();
    spdlog::warn("{}: its lease cannot be used: {}", title(row), lease.error().message);
    if (lease.error().code == ErrorCode::kCorruption) why_lost = lease.error().message;
  }
  if (!stage_.answers()) return std::optional<stage::Lease>();
  // One that had a lease of its own, and cannot use it, finds no better one.
  const bool had_none = held == held_.end() && row.lease_path.empty();
  if (row.kind == kAverage && !is_partial(row)) {
    if (!had_none) EVALCAR_RETURN_IF_ERROR(form_again(row, why_lost));
    return std::optional<stage::Lease>();
  }
  held_.erase(row.id);
  if (seen == nullptr && had_none) {
    EVALCAR_ASSIGN_OR_RETURN(auto found, lease_of_another(row));
    if (!found.has_value()) {
      EVALCAR_ASSIGN_OR_RETURN(found, lease_without_row(row));
    }
    if (found.has_value()) {
      held_[row.id] = *found;
      return take_up(row, std::move(*found));
    }
    if (!stage_.answers()) return std::optional<stage::Lease>();
  }
  if (seen == nullptr) {
    EVALCAR_RETURN_IF_ERROR(end_evaluation(store_, row.id, EvaluationState::kLost, why_lost));
    release(row);
    return std::optional<stage::Lease>();
  }
  if (row.state == EvaluationState::kLeased) {
    EVALCAR_RETURN_IF_ERROR(store_.transition(row.id, EvaluationState::kFailed,
                                              "the lease was damaged; it is taken again"));
  }
  EVALCAR_RETURN_IF_ERROR(take(row, *seen));
  const auto taken = held_.find(row.id);
  if (taken == held_.end()) return std::optional<stage::Lease>();
  return std::optional(taken->second);
}

std::string Leases::dir_of(const state::Evaluation& row) const {
  if (row.lease_path.empty()) return "";
  const std::string own = stage_.own(row.lease_path);
  if (!own.empty()) return stage_.holds(own) ? own : "";
  const auto kind = checkpoint::weights_kind_from_name(row.kind);
  const bool seen =
      kind.has_value() && view_.whole_in(row.checkpoint_path, {row.step, *kind}) != nullptr;
  return seen ? row.checkpoint_path : "";
}

void Leases::release(const state::Evaluation& row) {
  const auto held = held_.find(row.id);
  const std::string dir = held != held_.end() ? held->second.dir : row.lease_path;
  held_.erase(row.id);
  const bool is_kept = best_.hold_back(row);
  // Before the folder goes: a row that remembers a lease may be measured from it.
  if (const Status forgotten = store_.forget_lease(row.id); !forgotten.has_value()) {
    return spdlog::warn("{}", forgotten.error().message);
  }
  if (averages_.keeps(row) || is_kept) return;
  // A lease belongs to the checkpoint and the kind: another evaluation of them may hold it too.
  state::EvaluationFilter filter;
  filter.checkpoint_id = row.checkpoint_id;
  filter.kind = row.kind;
  const auto others = rows_with_lease(store_.read(), filter);
  if (!others.has_value()) return spdlog::warn("{}", others.error().message);
  for (const state::Evaluation& other : *others) {
    if (other.id != row.id && stage_.own(other.lease_path) == stage_.own(dir)) return;
  }
  if (const Status released = stage_.release(dir); !released.has_value()) {
    spdlog::warn("{}", released.error().message);  // a leftover: removed later
  }
}

Status Leases::drop_folder(const std::string& name, const std::vector<state::Evaluation>& holders) {
  for (const state::Evaluation& row : holders) held_.erase(row.id);
  return stage_.release(stage_.dir_of(name));
}

bool Leases::holds_folder(const state::Evaluation& row) const {
  return stage_.holds(row.lease_path);
}

Result<bool> Leases::hand_over(const state::Evaluation& from, const state::Evaluation& to) {
  // Of an average over another number of checkpoints it holds the wrong ones.
  if (from.settings.average_last != to.settings.average_last) return false;
  if (to.state == EvaluationState::kFound || revivable(to)) {
    EVALCAR_RETURN_IF_ERROR(store_.transition(to.id, EvaluationState::kComplete));
  } else if (to.state != EvaluationState::kComplete) {
    return false;
  }
  EVALCAR_RETURN_IF_ERROR(store_.mark_leased(to.id, stage_.own(from.lease_path)));
  return true;
}

bool Leases::vanished_in_place(const state::Evaluation& row) {
  const auto held = held_.find(row.id);
  if (held == held_.end() || held->second.method != stage::Method::kInPlace ||
      stage_.check(held->second) != stage::Integrity::kVanished) {
    return false;
  }
  held_.erase(held);
  return true;
}

}  // namespace evalcar::run
