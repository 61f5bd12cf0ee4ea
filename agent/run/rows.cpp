#include "agent/run/rows.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>

namespace evalcar::run {

using state::EvaluationState;

std::string kind_of(const watch::Sighting& seen) {
  return std::string(checkpoint::weights_kind_name(seen.kind));
}

std::string title(const state::Evaluation& row) { return row.checkpoint + " " + row.kind; }

log::Event event_of(std::string_view name, const state::Evaluation& row) {
  log::Event event(name);
  event.with("run", row.run).with("step", row.step).with("kind", row.kind);
  return event.with("evaluation", row.id);
}

std::string folder_name(const std::string& pattern, std::int64_t step) {
  constexpr std::string_view kStep = "{step}";
  std::string name = pattern;
  const std::size_t at = name.find(kStep);
  return at == std::string::npos ? name : name.replace(at, kStep.size(), std::to_string(step));
}

bool is_snapshot(const state::Checkpoint& checkpoint) {
  return state::lies_elsewhere(checkpoint.path, checkpoint.name);
}

std::string lease_name_of(std::int64_t step, std::int64_t generation, const std::string& kind) {
  return std::to_string(step) + "-" + std::to_string(generation) + "-" + kind;
}

std::string kind_of_lease(const std::string& name) { return name.substr(name.rfind('-') + 1); }

std::optional<std::int64_t> step_of_lease(const std::string& name) {
  std::int64_t step = 0;
  const auto read = std::from_chars(name.data(), name.data() + name.size(), step);
  return read.ec == std::errc() ? std::optional(step) : std::nullopt;
}

std::string series_of(const state::Standing& row) {
  if (row.settings.requested != 0) return "job " + std::to_string(row.id);
  std::vector<std::string> tasks = row.settings.tasks;
  std::sort(tasks.begin(), tasks.end());
  std::string series;
  for (const std::string& task : tasks) series += task + " ";
  return series;
}

bool is_open(EvaluationState state) {
  return !state::is_end_state(state) && state != EvaluationState::kScored;
}

std::string written_again(const std::string& checkpoint, std::int64_t generation) {
  return checkpoint + " was written again (generation " + std::to_string(generation) + ")";
}

bool is_partial(const state::Evaluation& row) {
  return row.state == EvaluationState::kPublished && !row.reason.empty();
}

namespace {

/// A scored row remembers a lease only where some of its tasks failed, and so does a published one.
state::EvaluationFilter only_with_lease(state::EvaluationFilter restrict) {
  restrict.states = {EvaluationState::kComplete, EvaluationState::kLeased,
                     EvaluationState::kLoading,  EvaluationState::kEvaluating,
                     EvaluationState::kFailed,   EvaluationState::kScored,
                     EvaluationState::kPublished};
  restrict.with_lease = true;
  return restrict;
}

}  // namespace

Result<std::vector<state::Evaluation>> rows_with_lease(const state::Reader& rows,
                                                       state::EvaluationFilter restrict) {
  return rows.evaluations(only_with_lease(std::move(restrict)));
}

Result<std::set<std::string>> lease_names_of_rows(const state::Reader& rows,
                                                  const stage::Stage& stage) {
  std::set<std::string> names;
  EVALCAR_ASSIGN_OR_RETURN(const auto paths, rows.lease_paths(only_with_lease({})));
  for (const std::string& path : paths) names.insert(base_name(stage.own(path)));
  return names;
}

Result<bool> needs_lease(const state::Reader& rows, const stage::Stage& stage,
                         const std::string& name) {
  state::EvaluationFilter same;
  same.step = step_of_lease(name);
  same.kind = kind_of_lease(name);
  EVALCAR_ASSIGN_OR_RETURN(const auto paths, rows.lease_paths(only_with_lease(std::move(same))));
  return std::any_of(paths.begin(), paths.end(), [&stage, &name](const std::string& path) {
    return base_name(stage.own(path)) == name;
  });
}

Status check_number_of_members(const stage::Stage& stage, const std::string& dir,
                               const state::Evaluation& row) {
  EVALCAR_ASSIGN_OR_RETURN(const std::size_t members, stage.count_members(dir));
  if (members == static_cast<std::size_t>(row.settings.average_last)) return {};
  return make_error(ErrorCode::kCorruption, dir + ": is of " + std::to_string(members) +
                                                " checkpoints, not of " +
                                                std::to_string(row.settings.average_last));
}

bool revivable(const state::Evaluation& row) {
  if (row.state == EvaluationState::kSkipped) {
    return row.reason.starts_with(kNotWanted) ||
           row.reason.find(kEmaNotStarted) != std::string::npos || row.reason == kNotInCheckpoint;
  }
  const bool was_never_read =
      row.state == EvaluationState::kQuarantined || row.state == EvaluationState::kLost;
  return was_never_read && (row.attempts == 0 || row.reason.starts_with(kMadeAnew));
}

Status leave_in_part(state::Store& store, const state::Evaluation& row, const std::string& reason) {
  spdlog::warn("{}: published in part: {}", title(row), reason);
  return store.set_reason(row.id, row.reason + "; " + reason);
}

Status end_evaluation(state::Store& store, std::int64_t evaluation, EvaluationState to,
                      const std::string& reason) {
  EVALCAR_RETURN_IF_ERROR(store.transition(evaluation, to, reason));
  EVALCAR_ASSIGN_OR_RETURN(const state::Evaluation row, store.read().evaluation(evaluation));
  log::info(title(row) + ": " + std::string(state::state_name(to)) + ": " + reason,
            event_of(state::state_name(to), row));
  return {};
}

}  // namespace evalcar::run
