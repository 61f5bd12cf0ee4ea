#include "agent/run/take_up.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <vector>

#include "agent/run/adoption.h"
#include "agent/run/rows.h"

namespace evalcar::run {

using state::EvaluationState;

TakeUp::TakeUp(const Surroundings& around, const config::Settings& settings, state::Store& store,
               const stage::Stage& stage, const CurrentRun& run, const Wanted& wanted,
               Leases& leases)
    : around_(around),
      settings_(settings),
      store_(store),
      stage_(stage),
      run_(run),
      wanted_(wanted),
      leases_(leases) {}

Status TakeUp::step() {
  if (done_) return {};
  // First: what is kept and told as the best depends on it.
  if (const auto configured = wanted_.configured(); configured.has_value()) {
    EVALCAR_RETURN_IF_ERROR(store_.set_configured(run_.id(), *configured));
  }
  Slice slice(around_);
  EVALCAR_RETURN_IF_ERROR(end_older_generations());
  EVALCAR_RETURN_IF_ERROR(take_up_rows(slice));
  if (!slice.was_cut()) {
    EVALCAR_RETURN_IF_ERROR(
        adopt_leases(around_.files, store_, stage_, wanted_, run_.run(),
                     {run_.output_dir(), settings_.watch.pattern, settings_.evaluate.base_model},
                     adopted_, slice));
  }
  done_ = !slice.was_cut();
  return done_ ? end_older_generations() : Status();  // than those that were adopted
}

void TakeUp::forget() {
  done_ = false;
  adopted_.clear();
}

/// Where a process ended between the record of a new generation and the end of the one before it:
/// that one's number would be of weights that are no more the checkpoint's.
Status TakeUp::end_older_generations() {
  EVALCAR_ASSIGN_OR_RETURN(const auto newest, store_.read().written_again(run_.id()));
  if (newest.empty()) return {};
  EVALCAR_ASSIGN_OR_RETURN(const auto of_folders, store_.read().written_again(run_.id(), true));
  state::EvaluationFilter filter;
  filter.run_id = run_.id();
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, store_.read().evaluations(filter));
  for (const state::Evaluation& row : rows) {
    if (!is_open(row.state)) continue;
    // Who asked for the folder did not ask for weights of its step that lay elsewhere.
    const auto& known = row.settings.requested != 0 ? of_folders : newest;
    const auto found = known.find(row.checkpoint);
    if (found == known.end() || row.generation >= found->second) continue;
    EVALCAR_RETURN_IF_ERROR(end_evaluation(store_, row.id, EvaluationState::kSuperseded,
                                           written_again(row.checkpoint, found->second)));
    leases_.release(row);
  }
  return {};
}

Status TakeUp::take_up_rows(Slice& slice) {
  EVALCAR_ASSIGN_OR_RETURN(const auto runs, store_.read().runs());
  for (const state::Run& other : runs) {
    const bool same_place = other.output_dir == run_.run().output_dir && other.id != run_.id();
    if (same_place) EVALCAR_RETURN_IF_ERROR(end_other_run(other, slice));
    if (slice.was_cut()) return {};
  }
  state::EvaluationFilter filter;
  filter.run_id = run_.id();
  filter.states = {EvaluationState::kLost};
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, store_.read().evaluations(filter));
  for (const state::Evaluation& row : rows) {
    if (!row.reason.starts_with(kMadeAnew) || !leases_.holds_folder(row)) continue;
    EVALCAR_RETURN_IF_ERROR(store_.transition(row.id, EvaluationState::kComplete));
    EVALCAR_RETURN_IF_ERROR(store_.mark_leased(row.id, row.lease_path));
    spdlog::info("{}: its output directory is back, it goes on", title(row));
    if (slice.over()) return {};
  }
  return take_up_unmeasured(slice);
}

/// The configuration changed before their turn, and came back. Those whose checkpoints are there
/// are revived by that sighting; of others the weights may be kept. Not those of an older save:
/// their numbers would take the place of the newest one's.
Status TakeUp::take_up_unmeasured(Slice& slice) {
  state::EvaluationFilter filter;
  filter.run_id = run_.id();
  filter.states = {EvaluationState::kSkipped};
  EVALCAR_ASSIGN_OR_RETURN(const auto skipped, store_.read().evaluations(filter));
  const std::vector<std::string> names = leases_.names();
  const std::set<std::string> kept(names.begin(), names.end());
  for (const state::Evaluation& row : skipped) {
    if (!row.reason.ends_with(kConfigurationChanged) || !wanted_.matches(row)) continue;
    if (!kept.contains(lease_name_of(row.step, row.generation, row.kind))) continue;
    EVALCAR_ASSIGN_OR_RETURN(const std::string unwanted, wanted_.why_not(row));
    EVALCAR_ASSIGN_OR_RETURN(const auto of_step,
                             store_.read().evaluations({.run_id = row.run_id, .step = row.step}));
    const bool newest = std::all_of(
        of_step.begin(), of_step.end(),
        [&row](const state::Evaluation& other) { return other.generation <= row.generation; });
    if (!unwanted.empty() || !newest) continue;
    EVALCAR_ASSIGN_OR_RETURN(const bool revived, leases_.revive_from_kept(row));
    if (!revived) continue;
    spdlog::info("{}: is wanted again, and its weights are kept", title(row));
    if (slice.over()) return {};
  }
  return {};
}

/// Its leases are not released: a folder of that name here is a lease of this run.
Status TakeUp::end_other_run(const state::Run& other, Slice& slice) {
  const std::string reason = std::string(kMadeAnew) + " (run " + run_.run().name + ")";
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, store_.read().evaluations({.run_id = other.id}));
  for (const state::Evaluation& row : rows) {
    if (is_open(row.state)) {
      EVALCAR_RETURN_IF_ERROR(end_evaluation(store_, row.id, EvaluationState::kLost, reason));
    } else if (row.state == EvaluationState::kScored) {  // the database keeps its numbers
      const std::string unpublished = "not published: " + reason;
      if (row.reason == unpublished) continue;
      EVALCAR_RETURN_IF_ERROR(store_.set_reason(row.id, unpublished));
    } else {
      continue;
    }
    if (slice.over()) return {};
  }
  return {};
}

}  // namespace evalcar::run
