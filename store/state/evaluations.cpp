// The way of an evaluation: planning, transitions, attempts, progress.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "store/base/crash_point.h"
#include "store/state/sqlite.h"
#include "store/state/store.h"

namespace evalcar::state {
namespace {

Error no_such_evaluation(const std::string& path, std::int64_t id) {
  return make_error(ErrorCode::kNotFound, path + ": no evaluation " + std::to_string(id));
}

/// The set of tasks as the evaluation's key: sorted, each once.
std::string tasks_key(std::vector<std::string> tasks) {
  std::sort(tasks.begin(), tasks.end());
  tasks.erase(std::unique(tasks.begin(), tasks.end()), tasks.end());
  return nlohmann::json(tasks).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool is_running(EvaluationState state) {
  return state == EvaluationState::kLoading || state == EvaluationState::kEvaluating;
}

}  // namespace

Result<Evaluation> Store::plan_evaluation(const NewEvaluation& wanted) {
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*connection_));
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t id, plan_row(wanted));
  EVALCAR_ASSIGN_OR_RETURN(Evaluation evaluation, reader_.evaluation(id));
  EVALCAR_RETURN_IF_ERROR(transaction.commit());
  return evaluation;
}

Result<std::int64_t> Store::plan_row(const NewEvaluation& wanted) {
  if (wanted.settings.tasks.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "an evaluation needs at least one task");
  }
  const std::string tasks = tasks_key(wanted.settings.tasks);
  const std::string identity = settings_sha256(wanted.settings, wanted.dtype);
  std::int64_t id = 0;
  {
    EVALCAR_ASSIGN_OR_RETURN(
        Statement known,
        connection_->prepare("SELECT evaluation_id FROM evaluation WHERE checkpoint_id = ?1 AND "
                             "kind = ?2 AND tasks = ?3 AND settings_sha256 = ?4",
                             wanted.checkpoint_id, wanted.kind, tasks, identity));
    EVALCAR_ASSIGN_OR_RETURN(const bool row, known.step());
    if (row) id = known.integer(0);
  }
  if (id == 0) {
    EVALCAR_ASSIGN_OR_RETURN(const Checkpoint checkpoint, reader_.checkpoint(wanted.checkpoint_id));
    EVALCAR_RETURN_IF_ERROR(connection_->run(
        "INSERT INTO evaluation(run_id, checkpoint_id, step, kind, tasks, settings, "
        "settings_sha256, dtype, state, created_at, updated_at) "
        "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'found', ?9, ?9)",
        checkpoint.run_id, checkpoint.id, checkpoint.step, wanted.kind, tasks,
        protocol::encode_settings(wanted.settings), identity, wanted.dtype, now()));
    id = connection_->last_insert_id();
  }
  return id;
}

Result<EvaluationState> Store::state_of(std::int64_t evaluation_id) {
  EVALCAR_ASSIGN_OR_RETURN(
      Statement row,
      connection_->prepare("SELECT state FROM evaluation WHERE evaluation_id = ?1", evaluation_id));
  EVALCAR_ASSIGN_OR_RETURN(const bool found, row.step());
  if (!found) return no_such_evaluation(path_, evaluation_id);
  const auto state = state_from_name(row.text(0));
  if (!state.has_value()) {
    return make_error(ErrorCode::kCorruption, path_ + ": evaluation " +
                                                  std::to_string(evaluation_id) +
                                                  " has the unknown state '" + row.text(0) + "'");
  }
  return *state;
}

Status Store::require_state(std::int64_t evaluation_id, std::span<const EvaluationState> allowed,
                            std::string_view what) {
  EVALCAR_ASSIGN_OR_RETURN(const EvaluationState state, state_of(evaluation_id));
  if (std::find(allowed.begin(), allowed.end(), state) != allowed.end()) return {};
  return make_error(ErrorCode::kInternal, "evaluation " + std::to_string(evaluation_id) + ": " +
                                              std::string(what) + " is not allowed in state " +
                                              std::string(state_name(state)));
}

Status Store::move(std::int64_t evaluation_id, EvaluationState to, const std::string& why,
                   const std::string& outcome, const AttemptFailure& failure) {
  EVALCAR_ASSIGN_OR_RETURN(const EvaluationState from, state_of(evaluation_id));
  bool allowed = transition_allowed(from, to);
  EVALCAR_ASSIGN_OR_RETURN(const bool keeps_numbers, has_numbers(evaluation_id));
  std::string reason = why;
  if (allowed && keeps_numbers && is_end_state(to) && to != EvaluationState::kPublished) {
    // What was published before stands; only the rest has come to an end.
    EVALCAR_ASSIGN_OR_RETURN(reason, failed_tasks(evaluation_id));
    if (!why.empty()) reason += "; " + std::string(state_name(to)) + ": " + why;
    to = EvaluationState::kPublished;
  }
  if (from == EvaluationState::kPublished && to == EvaluationState::kComplete) {
    EVALCAR_ASSIGN_OR_RETURN(const std::string failed, failed_tasks(evaluation_id));
    allowed = !failed.empty();  // for the rest
  }
  if (!allowed) {
    return make_error(ErrorCode::kInternal, "evaluation " + std::to_string(evaluation_id) + ": " +
                                                std::string(state_name(from)) + " → " +
                                                std::string(state_name(to)) +
                                                " is not a legal transition");
  }
  if (is_running(from) && !is_running(to)) {
    EVALCAR_RETURN_IF_ERROR(connection_->run(
        "UPDATE attempt SET ended_at = ?2, outcome = ?3, stage = ?4, error_kind = ?5, message = ?6 "
        "WHERE evaluation_id = ?1 AND outcome = 'running'",
        evaluation_id, now(), outcome, failure.stage, failure.kind,
        failure.message.empty() ? reason : failure.message));
  }
  const bool finished =
      to == EvaluationState::kScored || (is_end_state(to) && to != EvaluationState::kPublished);
  EVALCAR_RETURN_IF_ERROR(
      connection_->run("UPDATE evaluation SET state = ?2, reason = ?3, updated_at = ?4, "
                       "finished_at = CASE WHEN ?5 THEN ?4 WHEN ?6 THEN finished_at ELSE '' END, "
                       "next_try_at = '' WHERE evaluation_id = ?1",
                       evaluation_id, state_name(to), reason, now(), finished, keeps_numbers));
  if (is_end_state(from)) {  // asked for again by a person: as if it had never failed
    EVALCAR_RETURN_IF_ERROR(connection_->run(
        "UPDATE evaluation SET failures = 0, stage = '', progress_done = 0, progress_total = 0, "
        "lease_path = iif(?2, lease_path, '') WHERE evaluation_id = ?1",
        evaluation_id, from == EvaluationState::kPublished));
  }
  return {};
}

Status Store::transition(std::int64_t evaluation_id, EvaluationState to,
                         const std::string& reason) {
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*connection_));
  using enum EvaluationState;
  // These carry data that their own methods bring.
  if (to == kLoading || to == kEvaluating || to == kScored || to == kPublished) {
    return make_error(ErrorCode::kInternal, "evaluation " + std::to_string(evaluation_id) +
                                                ": transition() cannot bring the state " +
                                                std::string(state_name(to)));
  }
  EVALCAR_RETURN_IF_ERROR(move(evaluation_id, to, reason));
  return transaction.commit();
}

Status Store::ask_again(std::int64_t evaluation_id, const std::string& reason) {
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*connection_));
  EVALCAR_RETURN_IF_ERROR(move(evaluation_id, EvaluationState::kComplete, reason));
  EVALCAR_RETURN_IF_ERROR(set_asked(evaluation_id));
  return transaction.commit();
}

Status Store::set_asked(std::int64_t evaluation_id) {
  return connection_->run("UPDATE evaluation SET asked = 1 WHERE evaluation_id = ?1",
                          evaluation_id);
}

Status Store::set_reason(std::int64_t evaluation_id, const std::string& reason) {
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*connection_));
  EVALCAR_ASSIGN_OR_RETURN([[maybe_unused]] const EvaluationState state, state_of(evaluation_id));
  EVALCAR_RETURN_IF_ERROR(connection_->run(
      "UPDATE evaluation SET reason = ?2, updated_at = ?3 WHERE evaluation_id = ?1 AND reason <> "
      "?2",
      evaluation_id, reason, now()));
  return transaction.commit();
}

Status Store::begin_completion(std::int64_t evaluation_id,
                               const std::map<std::string, std::string>& circumstances) {
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*connection_));
  EVALCAR_RETURN_IF_ERROR(
      require_state(evaluation_id, std::array{EvaluationState::kPublished}, "measuring the rest"));
  std::string rest;
  for (const auto& [task, now] : circumstances) {
    EVALCAR_RETURN_IF_ERROR(
        connection_->run("UPDATE evaluation_task SET circumstances = ?3 WHERE evaluation_id = ?1 "
                         "AND task = ?2 AND result_id IS NULL",
                         evaluation_id, task, now));
    rest.append(rest.empty() ? "the rest is measured: " : ", ").append(task);
  }
  EVALCAR_RETURN_IF_ERROR(move(evaluation_id, EvaluationState::kComplete, rest));
  return transaction.commit();
}

Status Store::forget_lease(std::int64_t evaluation_id) {
  return connection_->run(
      "UPDATE evaluation SET lease_path = '' WHERE evaluation_id = ?1 AND lease_path <> ''",
      evaluation_id);
}

Status Store::move_lease(std::int64_t evaluation_id, const std::string& lease_path) {
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*connection_));
  EVALCAR_RETURN_IF_ERROR(
      require_state(evaluation_id, std::array{EvaluationState::kLeased, EvaluationState::kFailed},
                    "another lease"));
  EVALCAR_RETURN_IF_ERROR(connection_->run(
      "UPDATE evaluation SET lease_path = ?2 WHERE evaluation_id = ?1", evaluation_id, lease_path));
  return transaction.commit();
}

Status Store::mark_leased(std::int64_t evaluation_id, const std::string& lease_path) {
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*connection_));
  EVALCAR_RETURN_IF_ERROR(move(evaluation_id, EvaluationState::kLeased, ""));
  EVALCAR_RETURN_IF_ERROR(connection_->run(
      "UPDATE evaluation SET lease_path = ?2 WHERE evaluation_id = ?1", evaluation_id, lease_path));
  return transaction.commit();
}

Result<std::int64_t> Store::begin_attempt(std::int64_t evaluation_id, const std::string& device) {
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*connection_));
  EVALCAR_RETURN_IF_ERROR(move(evaluation_id, EvaluationState::kLoading, ""));
  EVALCAR_RETURN_IF_ERROR(connection_->run(
      "UPDATE evaluation SET attempts = attempts + 1, stage = 'loading', progress_done = 0, "
      "progress_total = 0 WHERE evaluation_id = ?1",
      evaluation_id));
  EVALCAR_RETURN_IF_ERROR(connection_->run(
      "INSERT INTO attempt(evaluation_id, number, started_at, device) "
      "SELECT evaluation_id, attempts, ?2, ?3 FROM evaluation WHERE evaluation_id = ?1",
      evaluation_id, now(), device));
  const std::int64_t attempt_id = connection_->last_insert_id();
  EVALCAR_RETURN_IF_ERROR(transaction.commit());
  crash_point("after_claim");
  return attempt_id;
}

Status Store::record_progress(std::int64_t evaluation_id, const std::string& stage,
                              std::int64_t done, std::int64_t total) {
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*connection_));
  EVALCAR_RETURN_IF_ERROR(require_state(
      evaluation_id, std::array{EvaluationState::kLoading, EvaluationState::kEvaluating},
      "progress"));
  EVALCAR_RETURN_IF_ERROR(connection_->run(
      "UPDATE evaluation SET stage = ?2, progress_done = ?3, progress_total = ?4, updated_at = ?5 "
      "WHERE evaluation_id = ?1",
      evaluation_id, stage, done, total, now()));
  return transaction.commit();
}

/// What a device that failed had computed before is measured anew.
Status Store::drop_doubtful_answers(std::int64_t evaluation_id, const AttemptFailure& failure) {
  if (!protocol::is_device_fault(failure.kind)) return {};
  return connection_->run("DELETE FROM answer WHERE evaluation_id = ?1", evaluation_id);
}

Status Store::fail_attempt(std::int64_t evaluation_id, const AttemptFailure& failure,
                           const std::string& next_try_at, bool quarantine) {
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*connection_));
  EVALCAR_RETURN_IF_ERROR(drop_doubtful_answers(evaluation_id, failure));
  EVALCAR_RETURN_IF_ERROR(
      move(evaluation_id, quarantine ? EvaluationState::kQuarantined : EvaluationState::kFailed,
           failure.message.empty() ? failure.kind : failure.message, "failed", failure));
  EVALCAR_RETURN_IF_ERROR(connection_->run(
      "UPDATE evaluation SET failures = failures + 1, next_try_at = ?2 WHERE evaluation_id = ?1",
      evaluation_id, quarantine ? std::string() : next_try_at));
  return transaction.commit();
}

Status Store::put_back(std::int64_t evaluation_id, const AttemptFailure& failure) {
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*connection_));
  EVALCAR_RETURN_IF_ERROR(drop_doubtful_answers(evaluation_id, failure));
  const std::string& why = failure.message.empty() ? failure.kind : failure.message;
  EVALCAR_ASSIGN_OR_RETURN(const bool keeps_numbers, has_numbers(evaluation_id));
  EVALCAR_ASSIGN_OR_RETURN(const EvaluationState from, state_of(evaluation_id));
  if (keeps_numbers && failure.kind == protocol::kData) {
    EVALCAR_RETURN_IF_ERROR(move(evaluation_id, EvaluationState::kSkipped, "", "failed", failure));
    if (from == EvaluationState::kLoading) {  // they could not be opened: any that can will do
      EVALCAR_RETURN_IF_ERROR(
          connection_->run("UPDATE evaluation_task SET circumstances = '' WHERE evaluation_id = ?1 "
                           "AND result_id IS NULL AND error_kind = ?2",
                           evaluation_id, failure.kind));
    }
  } else {
    EVALCAR_RETURN_IF_ERROR(move(evaluation_id, EvaluationState::kLeased, why, "failed", failure));
  }
  return transaction.commit();
}

Result<std::int64_t> Store::recover() {
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*connection_));
  EvaluationFilter running;
  running.states = {EvaluationState::kLoading, EvaluationState::kEvaluating};
  EVALCAR_ASSIGN_OR_RETURN(const auto interrupted, reader_.evaluations(running));
  for (const Evaluation& evaluation : interrupted) {
    EVALCAR_RETURN_IF_ERROR(move(evaluation.id, EvaluationState::kLeased,
                                 "the agent was stopped while this ran; it goes on"));
  }
  EVALCAR_RETURN_IF_ERROR(transaction.commit());
  return static_cast<std::int64_t>(interrupted.size());
}

}  // namespace evalcar::state
