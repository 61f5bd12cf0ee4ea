#include "agent/run/recorder.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <tuple>

#include "agent/run/rows.h"

namespace evalcar::run {

using checkpoint::WeightsKind;
using state::EvaluationState;
using watch::Verdict;

Recorder::Recorder(FileSystem& files, state::Store& store, const CurrentRun& run,
                   const Wanted& wanted, Leases& leases, DiskView& view, InFlight& in_flight,
                   Links links)
    : files_(files),
      store_(store),
      run_(run),
      wanted_(wanted),
      leases_(leases),
      view_(view),
      in_flight_(in_flight),
      links_(std::move(links)) {}

void Recorder::note_presence(const watch::Sighting& seen) {
  if (seen.verdict == Verdict::kGone) {
    view_.present.erase(seen.step);
  } else if (seen.verdict != Verdict::kNotStarted) {
    view_.present[seen.step] = seen.path;
    view_.untold.insert(seen.step);
  }
}

void Recorder::all_is_told() { view_.untold.clear(); }

void Recorder::forget() {
  torn_.clear();
  checkpoint_of_step_.clear();
}

namespace {

/// Of weights that somebody wants. Nothing more may ever come of them: a person has to hear why.
Status say_torn(const state::Reader& rows, std::int64_t run_id, const watch::Sighting& seen) {
  state::EvaluationFilter filter;
  filter.run_id = run_id;
  filter.step = seen.step;
  filter.kind = kind_of(seen);
  filter.states = {EvaluationState::kFound};
  EVALCAR_ASSIGN_OR_RETURN(const auto open, rows.evaluations(filter));
  if (open.empty()) return {};
  spdlog::warn("{}: not whole, and nothing moves: {}", title(open.front()), seen.reason);
  return {};
}

}  // namespace

std::set<std::int64_t> Recorder::torn_steps() const {
  std::set<std::int64_t> steps;
  for (const auto& [key, seen] : torn_) {
    if (key.second == WeightsKind::kRegular) steps.insert(key.first);
  }
  return steps;
}

Status Recorder::record(const watch::Sighting& seen) {
  const auto before = torn_.find({seen.step, seen.kind});
  const std::string said = before == torn_.end() ? std::string() : before->second.reason;
  torn_.erase({seen.step, seen.kind});
  const bool first = !view_.told.contains({seen.step, seen.kind});
  view_.told[{seen.step, seen.kind}] = {seen.verdict, seen.reason};
  switch (seen.verdict) {
    case Verdict::kWaiting:
      return record_waiting(seen, first);
    case Verdict::kTorn:
      torn_[{seen.step, seen.kind}] = seen;
      view_.complete.erase({seen.step, seen.kind});  // no lease can be taken of it
      EVALCAR_RETURN_IF_ERROR(record_waiting(seen, first));
      return seen.reason == said ? Status() : say_torn(store_.read(), run_.id(), seen);
    case Verdict::kOvertaken:
      torn_[{seen.step, seen.kind}] = seen;
      view_.complete.erase({seen.step, seen.kind});
      return record_overtaken(seen);
    case Verdict::kComplete:
      return record_complete(seen);
    case Verdict::kNotStarted:
      view_.complete.erase({seen.step, seen.kind});
      return record_not_started(seen);
    case Verdict::kUnreadable:
      return record_unreadable(seen);
    case Verdict::kGone:
      return record_gone(seen);
  }
  return {};
}

// ---- the row of a sighting

state::CheckpointObservation Recorder::observation_of(const watch::Sighting& seen) const {
  state::CheckpointObservation observation;
  observation.name = seen.folder;
  observation.path = seen.path;
  observation.step = seen.step;
  if (seen.verdict != Verdict::kUnreadable) {
    observation.layout = std::string(checkpoint::layout_name(seen.layout));
  }
  if (const auto info = files_.info_followed(seen.path); info.has_value()) {
    observation.device = info->device;
    observation.inode = info->inode;
  } else if (const auto held = leases_.held_from(seen); held.has_value()) {
    // Removed since: by the folder that it was, it is the generation that its files are kept as.
    std::tie(observation.device, observation.inode) = *held;
  }
  state::KindObservation kind;
  kind.kind = kind_of(seen);
  kind.complete = seen.verdict == Verdict::kComplete;
  kind.reason = seen.reason;
  for (const watch::WatchedFile& file : seen.files) {
    const FileInfo& id = file.identity;
    kind.files.push_back({file.relative, id.inode, id.size_bytes, id.mtime_ns});
    kind.size_bytes += id.size_bytes;
  }
  kind.mtime_ns = kind.complete ? watch::written_ns(seen.files) : seen.folder_written_ns;
  kind.fingerprint = seen.fingerprint;
  observation.kinds.push_back(std::move(kind));
  return observation;
}

Result<state::Observed> Recorder::observe(const watch::Sighting& seen) {
  EVALCAR_ASSIGN_OR_RETURN(const state::Observed observed,
                           store_.observe_checkpoint(run_.id(), observation_of(seen)));
  EVALCAR_RETURN_IF_ERROR(supersede_older(observed.checkpoint));
  written_anew_ = written_anew_ || observed.replaces.has_value();
  return observed;
}

Result<std::vector<state::Evaluation>> Recorder::rows_in(const state::Checkpoint& checkpoint,
                                                         const watch::Sighting& seen) {
  std::vector<state::Evaluation> rows;
  for (const auto& wanted : wanted_.evaluations_of(checkpoint.id, kind_of(seen))) {
    EVALCAR_ASSIGN_OR_RETURN(auto row, store_.plan_evaluation(wanted));
    rows.push_back(std::move(row));
  }
  return rows;
}

Result<std::vector<state::Evaluation>> Recorder::rows_of(const watch::Sighting& seen) {
  EVALCAR_ASSIGN_OR_RETURN(const state::Observed observed, observe(seen));
  checkpoint_of_step_[seen.step] = observed.checkpoint.id;
  // Whatever is configured now: a number of its weights would be the last of its step.
  if (observed.is_older) return std::vector<state::Evaluation>();
  return rows_in(observed.checkpoint, seen);
}

/// At each sighting, not only at the one that made the generation: that may have been cut off here.
Status Recorder::supersede_older(const state::Checkpoint& now) {
  if (now.generation == 1) return {};
  state::EvaluationFilter filter;
  filter.run_id = now.run_id;
  filter.step = now.step;
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, store_.read().evaluations(filter));
  const std::string reason = written_again(now.name, now.generation);
  for (const state::Evaluation& row : rows) {
    if (row.checkpoint != now.name || row.generation >= now.generation) continue;
    // Somebody asked for the folder, and weights that lie elsewhere leave that as it is.
    if (row.settings.requested != 0 && state::lies_elsewhere(now.path, now.name)) continue;
    if (is_partial(row) && !row.lease_path.empty()) {
      EVALCAR_RETURN_IF_ERROR(leave_in_part(store_, row, reason));
      leases_.release(row);
    }
    if (!is_open(row.state)) continue;
    in_flight_.superseded.insert(row.id);
    EVALCAR_RETURN_IF_ERROR(end_evaluation(store_, row.id, EvaluationState::kSuperseded, reason));
    leases_.release(row);
  }
  return {};
}

Result<bool> Recorder::end_if_unwanted(const state::Evaluation& row) {
  if (row.asked || row.settings.requested != 0) return false;  // no configuration wants it
  EVALCAR_ASSIGN_OR_RETURN(const std::string reason, wanted_.why_not(row));
  if (reason.empty()) return false;
  if (is_open(row.state) && row.id != in_flight_.active) {
    EVALCAR_RETURN_IF_ERROR(end_evaluation(store_, row.id, EvaluationState::kSkipped,
                                           std::string(kNotWanted) + reason));
    leases_.release(row);
  }
  return true;
}

// ---- each verdict

/// `first`: nothing was told of this kind before.
Status Recorder::record_waiting(const watch::Sighting& seen, bool first) {
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, rows_of(seen));
  for (const state::Evaluation& row : rows) {
    // Of a row that is further on this is a delete or a rewrite in progress: it says nothing yet.
    if (row.state != EvaluationState::kFound) continue;
    EVALCAR_ASSIGN_OR_RETURN(const bool unwanted, end_if_unwanted(row));
    if (unwanted) continue;
    if (first) {
      log::info(title(row) + ": found, not complete yet: " + seen.reason, event_of("found", row));
    }
    EVALCAR_RETURN_IF_ERROR(store_.set_reason(row.id, seen.reason));
  }
  return {};
}

Status Recorder::record_complete(const watch::Sighting& seen) {
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, rows_of(seen));
  view_.complete[{seen.step, seen.kind}] = seen;
  if (seen.kind == WeightsKind::kRegular && seen.step == view_.newest_step() && run_.home_ready()) {
    const std::string step = std::to_string(seen.step);
    link_in_checkpoint(
        files_, links_.mode, seen, links_.pattern,
        {join_path(links_.results.dir, step), join_path(links_.results.target, step) + "/"});
  }
  // First all rows, then the leases: after a kill between, a lease without its row is taken back.
  std::vector<state::Evaluation> to_lease;
  for (const state::Evaluation& row : rows) {
    EVALCAR_ASSIGN_OR_RETURN(const bool waits, make_complete(row, seen));
    if (waits) to_lease.push_back(row);
  }
  for (const state::Evaluation& row : to_lease) EVALCAR_RETURN_IF_ERROR(leases_.take(row, seen));
  leases_.settle(seen);
  return {};
}

void Recorder::hold(const watch::Sighting& seen) {
  if (!run_.known() || !run_.home_ready() || leases_.is_held(seen)) return;
  const state::CheckpointObservation observation = observation_of(seen);
  const auto generation = store_.generation_of(run_.id(), observation);
  if (!generation.has_value()) return;  // not even read: the next turn tries again
  leases_.hold(seen, lease_name_of(seen.step, *generation, kind_of(seen)),
               {observation.device, observation.inode});
}

Result<bool> Recorder::record_again(std::int64_t step) {
  const auto sightings = view_.complete;  // recording changes it
  for (const auto& [key, seen] : sightings) {
    if (key.first == step) EVALCAR_RETURN_IF_ERROR(record(seen));
  }
  EVALCAR_ASSIGN_OR_RETURN(const auto rows,
                           store_.read().evaluations({.run_id = run_.id(), .step = step}));
  return std::any_of(rows.begin(), rows.end(), [this](const state::Evaluation& row) {
    return is_open(row.state) && wanted_.matches(row);
  });
}

Result<std::int64_t> Recorder::record_snapshot(const watch::Sighting& seen) {
  EVALCAR_ASSIGN_OR_RETURN(const state::Observed observed, observe(seen));
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, rows_in(observed.checkpoint, seen));
  for (const state::Evaluation& row : rows) {
    EVALCAR_ASSIGN_OR_RETURN(const bool waits, make_complete(row, seen));
    if (waits) EVALCAR_RETURN_IF_ERROR(leases_.refer(row, seen.path));
  }
  return observed.checkpoint.id;
}

/// True: it is to be leased.
Result<bool> Recorder::make_complete(const state::Evaluation& row, const watch::Sighting& seen) {
  EVALCAR_ASSIGN_OR_RETURN(const bool unwanted, end_if_unwanted(row));
  if (unwanted) return false;
  if (row.state == EvaluationState::kComplete) return true;
  if (row.state != EvaluationState::kFound && !revivable(row)) return false;
  EVALCAR_RETURN_IF_ERROR(store_.transition(row.id, EvaluationState::kComplete));
  const std::string_view layout = checkpoint::layout_name(seen.layout);
  log::info(fmt::format("{}: complete ({})", title(row), layout),
            event_of("complete", row).with("layout", layout));
  return true;
}

Status Recorder::record_not_started(const watch::Sighting& seen) {
  // Only where it was expected before (maybe by an earlier process): an empty EMA folder. Else
  // this kind just is not there.
  state::EvaluationFilter filter;
  filter.run_id = run_.id();
  filter.step = seen.step;
  filter.kind = kind_of(seen);
  filter.states = {EvaluationState::kFound};
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, store_.read().evaluations(filter));
  for (const state::Evaluation& row : rows) {
    EVALCAR_RETURN_IF_ERROR(end_evaluation(store_, row.id, EvaluationState::kSkipped, seen.reason));
  }
  return {};
}

Status Recorder::record_unreadable(const watch::Sighting& seen) {
  return set_aside(seen, {"recognising", "unsupported", seen.reason});
}

/// Should the rest of it come after all, it is taken up: see revivable().
Status Recorder::record_overtaken(const watch::Sighting& seen) {
  return set_aside(seen, {"watching", "corruption", seen.reason});
}

Status Recorder::set_aside(const watch::Sighting& seen, const state::AttemptFailure& failure) {
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, rows_of(seen));
  for (const state::Evaluation& row : rows) {
    if (row.state != EvaluationState::kFound) continue;
    EVALCAR_ASSIGN_OR_RETURN(const bool unwanted, end_if_unwanted(row));
    if (unwanted) continue;
    log::warn(
        title(row) + ": set aside: " + failure.message,
        event_of("quarantined", row).with("error", failure.kind).with("stage", failure.stage));
    EVALCAR_RETURN_IF_ERROR(store_.fail_attempt(row.id, failure, "", true));
  }
  return {};
}

/// A file system that was away for a moment, with all folders, may be back before this is recorded:
/// the next look tells of them anew.
Status Recorder::record_gone(const watch::Sighting& seen) {
  if (is_there(seen.folder)) return {};
  view_.complete.erase({seen.step, seen.kind});
  view_.told.erase({seen.step, seen.kind});
  const auto known = checkpoint_of_step_.find(seen.step);
  if (known == checkpoint_of_step_.end()) return {};
  EVALCAR_RETURN_IF_ERROR(store_.mark_checkpoint_gone(known->second));
  state::EvaluationFilter filter;
  filter.checkpoint_id = known->second;
  filter.states = {EvaluationState::kFound, EvaluationState::kComplete};
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, store_.read().evaluations(filter));
  for (const state::Evaluation& row : rows) {
    if (row.kind == "average") continue;  // its members may be leased: Averages knows
    const bool whole = row.state == EvaluationState::kComplete;
    EVALCAR_RETURN_IF_ERROR(lose(row, whole ? "removed before it could be leased"
                                            : "removed before it was complete: " + row.reason));
  }
  return {};
}

// ---- without a sighting

Status Recorder::lose(const state::Evaluation& row, const std::string& reason) {
  EVALCAR_ASSIGN_OR_RETURN(const bool unwanted, end_if_unwanted(row));
  if (unwanted) return {};
  return end_evaluation(store_, row.id, EvaluationState::kLost, reason);
}

bool Recorder::is_there(const std::string& folder) const {
  const auto info = files_.info_followed(join_path(run_.output_dir(), folder));
  return info.has_value() || info.error().code != ErrorCode::kNotFound;
}

Result<bool> Recorder::mark_vanished(Slice& slice) {
  EVALCAR_ASSIGN_OR_RETURN(const auto checkpoints, store_.read().checkpoints(run_.id()));
  for (const state::Checkpoint& known : checkpoints) {
    if (!known.gone_at.empty() || is_there(known.name)) continue;
    // All of them went at once: the next look tells what that means.
    if (!files_.info_followed(run_.output_dir()).has_value()) return false;
    EVALCAR_RETURN_IF_ERROR(store_.mark_checkpoint_gone(known.id));
    if (slice.over()) return false;
  }
  return true;
}

Result<bool> Recorder::end_vanished(Slice& slice) {
  EVALCAR_ASSIGN_OR_RETURN(const bool marked, mark_vanished(slice));
  if (!marked) return false;
  state::EvaluationFilter filter;
  filter.run_id = run_.id();
  filter.states = {EvaluationState::kFound};
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, store_.read().evaluations(filter));
  for (const state::Evaluation& row : rows) {
    if (row.kind == "average" || is_there(row.checkpoint)) continue;
    EVALCAR_RETURN_IF_ERROR(
        lose(row, "removed before it was complete, while no agent ran: " + row.reason));
    if (slice.over()) return false;
  }
  return true;
}

Status Recorder::close_torn() {
  for (const auto& [key, seen] : torn_) {
    EVALCAR_RETURN_IF_ERROR(set_aside(seen, {"watching", "corruption", seen.reason}));
  }
  torn_.clear();
  return {};
}

}  // namespace evalcar::run
