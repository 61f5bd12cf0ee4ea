// What an attempt brings: the hash of the weights, answers, scored samples, numbers.
#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "store/base/crash_point.h"
#include "store/state/sqlite.h"
#include "store/state/store.h"

namespace evalcar::state {

Result<Store::LoadedOutcome> Store::record_loaded(std::int64_t evaluation_id,
                                                  const std::string& weights_sha256,
                                                  const std::string& compute_dtype) {
  if (weights_sha256.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "evaluation " + std::to_string(evaluation_id) + ": loaded without a hash");
  }
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*connection_));
  EVALCAR_RETURN_IF_ERROR(
      require_state(evaluation_id, std::array{EvaluationState::kLoading}, "loaded weights"));
  LoadedOutcome outcome;
  EVALCAR_ASSIGN_OR_RETURN(const Evaluation evaluation, reader_.evaluation(evaluation_id));
  EVALCAR_ASSIGN_OR_RETURN(outcome.differs,
                           differs_from_numbers(evaluation, weights_sha256, compute_dtype));
  if (!outcome.differs.empty()) return outcome;
  EVALCAR_RETURN_IF_ERROR(move(evaluation_id, EvaluationState::kEvaluating, ""));
  EVALCAR_RETURN_IF_ERROR(connection_->run(
      "UPDATE evaluation SET weights_sha256 = ?2, compute_dtype = ?3 WHERE evaluation_id = ?1",
      evaluation_id, weights_sha256, compute_dtype));

  EVALCAR_RETURN_IF_ERROR(
      connection_->run("DELETE FROM answer WHERE evaluation_id = ?1 AND weights_sha256 <> ?2",
                       evaluation_id, weights_sha256));
  outcome.answers_discarded = connection_->changes();
  // Scoring is done anew; the lines behind a result of an earlier time stay.
  EVALCAR_RETURN_IF_ERROR(connection_->run(
      "DELETE FROM scored_sample WHERE evaluation_id = ?1 AND (task, fingerprint) NOT IN "
      "(SELECT task, fingerprint FROM result WHERE evaluation_id = ?1)",
      evaluation_id));
  {
    EVALCAR_ASSIGN_OR_RETURN(
        Statement kept, connection_->prepare("SELECT count(*) FROM answer WHERE evaluation_id = ?1",
                                             evaluation_id));
    EVALCAR_ASSIGN_OR_RETURN([[maybe_unused]] const bool row, kept.step());
    outcome.answers_kept = kept.integer(0);
  }
  EVALCAR_RETURN_IF_ERROR(transaction.commit());
  crash_point("after_load");
  return outcome;
}

Result<std::vector<std::int64_t>> Store::measured_twins(std::int64_t evaluation_id) {
  EVALCAR_ASSIGN_OR_RETURN(
      Statement twins,
      connection_->prepare(
          "SELECT other.evaluation_id FROM evaluation other JOIN evaluation own ON "
          "own.evaluation_id = ?1 WHERE other.evaluation_id <> own.evaluation_id "
          "AND other.run_id = own.run_id AND other.step = own.step AND other.kind = own.kind "
          "AND other.settings_sha256 = own.settings_sha256 "
          "AND other.weights_sha256 = own.weights_sha256 "
          "AND other.compute_dtype = own.compute_dtype "
          "AND other.state IN ('scored', 'published') ORDER BY other.evaluation_id",
          evaluation_id));
  std::vector<std::int64_t> ids;
  while (true) {
    EVALCAR_ASSIGN_OR_RETURN(const bool row, twins.step());
    if (!row) return ids;
    ids.push_back(twins.integer(0));
  }
}

Result<bool> Store::has_result(std::int64_t evaluation_id,
                               const protocol::TaskFingerprint& of) const {
  EVALCAR_ASSIGN_OR_RETURN(Statement found,
                           connection_->prepare("SELECT 1 FROM evaluation_task t JOIN result r "
                                                "USING (result_id) WHERE t.evaluation_id = ?1 AND "
                                                "t.task = ?2 AND r.fingerprint = ?3",
                                                evaluation_id, of.task, of.sha256));
  return found.step();
}

Result<bool> Store::is_shown(std::int64_t evaluation_id, const std::string& task) const {
  EVALCAR_ASSIGN_OR_RETURN(
      Statement shown,
      connection_->prepare("SELECT 1 FROM evaluation_task t JOIN evaluation_task c USING (run_id, "
                           "step, kind, task) WHERE t.evaluation_id = ?1 AND t.task = ?2 AND "
                           "c.current = 1 AND c.result_id = t.result_id",
                           evaluation_id, task));
  return shown.step();
}

Result<Store::PreparedOutcome> Store::record_prepared(
    std::int64_t evaluation_id, std::span<const protocol::TaskFingerprint> tasks) {
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*connection_));
  EVALCAR_RETURN_IF_ERROR(
      require_state(evaluation_id, std::array{EvaluationState::kEvaluating}, "fingerprints"));
  PreparedOutcome outcome;
  for (const protocol::TaskFingerprint& task : tasks) {
    EVALCAR_ASSIGN_OR_RETURN(
        Statement known, connection_->prepare("SELECT count(*) FROM answer WHERE evaluation_id = "
                                              "?1 AND task = ?2 AND fingerprint = ?3",
                                              evaluation_id, task.task, task.sha256));
    EVALCAR_ASSIGN_OR_RETURN([[maybe_unused]] const bool row, known.step());
    outcome.answers_usable += known.integer(0);
  }
  EVALCAR_ASSIGN_OR_RETURN(const Evaluation evaluation, reader_.evaluation(evaluation_id));
  EVALCAR_ASSIGN_OR_RETURN(const std::vector<std::int64_t> twins, measured_twins(evaluation_id));
  for (const std::int64_t twin : twins) {
    bool same = tasks.size() == evaluation.settings.tasks.size();
    bool shown = true;
    for (std::size_t i = 0; i < tasks.size() && same; ++i) {
      EVALCAR_ASSIGN_OR_RETURN(same, has_result(twin, tasks[i]));
      if (!shown || !same) continue;
      EVALCAR_ASSIGN_OR_RETURN(shown, is_shown(twin, tasks[i].task));
    }
    if (!same) continue;
    if (!shown) {
      outcome.measured_by = twin;
      continue;
    }
    outcome.duplicate_of = twin;
    outcome.measured_by.reset();
    EVALCAR_RETURN_IF_ERROR(move(evaluation_id, EvaluationState::kSuperseded,
                                 "the same weights as evaluation " + std::to_string(twin) +
                                     " of this step: already measured",
                                 "superseded"));
    break;
  }
  EVALCAR_RETURN_IF_ERROR(transaction.commit());
  return outcome;
}

Result<bool> Store::has_numbers(std::int64_t evaluation_id) {
  EVALCAR_ASSIGN_OR_RETURN(
      Statement measured,
      connection_->prepare("SELECT 1 FROM evaluation_task WHERE evaluation_id = ?1 AND result_id "
                           "IS NOT NULL LIMIT 1",
                           evaluation_id));
  return measured.step();
}

Result<std::string> Store::differs_from_numbers(const Evaluation& evaluation,
                                                const std::string& weights_sha256,
                                                const std::string& compute_dtype) {
  EVALCAR_ASSIGN_OR_RETURN(const bool keeps_numbers, has_numbers(evaluation.id));
  if (!keeps_numbers) return std::string();
  if (evaluation.weights_sha256 != weights_sha256) {
    return "the weights hash to " + weights_sha256.substr(0, 12) + "…, but " +
           evaluation.weights_sha256.substr(0, 12) + "… were measured before";
  }
  if (evaluation.compute_dtype != compute_dtype) {
    return "the device holds " + compute_dtype + ", but the weights were measured in " +
           evaluation.compute_dtype + " before (evaluate.dtype, evaluate.device)";
  }
  return std::string();
}

Status Store::record_answers(std::int64_t evaluation_id,
                             std::span<const protocol::Sample> answers) {
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*connection_));
  EVALCAR_RETURN_IF_ERROR(
      require_state(evaluation_id, std::array{EvaluationState::kEvaluating}, "an answer"));
  for (const protocol::Sample& answer : answers) {
    EVALCAR_RETURN_IF_ERROR(connection_->run(
        "INSERT OR REPLACE INTO answer(evaluation_id, task, fingerprint, doc_id, weights_sha256, "
        "text, output_tokens, cut_off) SELECT ?1, ?2, ?3, ?4, weights_sha256, ?5, ?6, ?7 FROM "
        "evaluation WHERE evaluation_id = ?1",
        evaluation_id, answer.task, answer.fingerprint, answer.doc_id, answer.text,
        answer.output_tokens,
        answer.cut_off.has_value() ? std::optional<std::int64_t>(*answer.cut_off) : std::nullopt));
  }
  EVALCAR_RETURN_IF_ERROR(transaction.commit());
  crash_point("mid_eval");
  return {};
}

Status Store::record_samples(std::int64_t evaluation_id,
                             std::span<const protocol::Scored> samples) {
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*connection_));
  EVALCAR_RETURN_IF_ERROR(
      require_state(evaluation_id, std::array{EvaluationState::kEvaluating}, "a scored sample"));
  for (const protocol::Scored& sample : samples) {
    EVALCAR_RETURN_IF_ERROR(connection_->run(
        "INSERT OR REPLACE INTO scored_sample(evaluation_id, task, fingerprint, "
        "doc_id, line) VALUES(?1, ?2, ?3, ?4, ?5)",
        evaluation_id, sample.task, sample.fingerprint, sample.doc_id, sample.line));
    EVALCAR_RETURN_IF_ERROR(record_pictures(sample));
  }
  return transaction.commit();
}

/// Written for the first checkpoint alone: those that follow say the same.
Status Store::record_pictures(const protocol::Scored& sample) {
  if (sample.pictures.empty() || sample.fingerprint.empty()) return {};
  return connection_->run(
      "INSERT INTO document_pictures(task, fingerprint, doc_id, pictures) VALUES(?1, ?2, ?3, ?4) "
      "ON CONFLICT(task, fingerprint, doc_id) DO UPDATE SET pictures = excluded.pictures "
      "WHERE pictures <> excluded.pictures",
      sample.task, sample.fingerprint, sample.doc_id, nlohmann::json(sample.pictures).dump());
}

Status Store::insert_metrics(std::int64_t result_id, const protocol::TaskResult& task) {
  std::int64_t position = 0;
  for (const protocol::Metric& metric : task.metrics) {
    std::optional<double> value = metric.value;
    std::optional<double> error = metric.stderr_value;
    std::string missing = metric.missing;
    if (value.has_value() && !std::isfinite(*value)) {
      value.reset();
      missing = "the value is not a finite number";
    }
    if (error.has_value() && !std::isfinite(*error)) error.reset();
    if (!value.has_value() && missing.empty()) missing = "no value was given";
    EVALCAR_RETURN_IF_ERROR(connection_->run(
        "INSERT INTO metric(result_id, position, name, filter, value, stderr, stderr_source, "
        "missing, higher_is_better) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        result_id, position++, metric.name, metric.filter, value, error, metric.stderr_source,
        missing, metric.higher_is_better));
  }
  return {};
}

Result<std::int64_t> Store::insert_result(const Evaluation& evaluation,
                                          const std::string& result_key,
                                          const protocol::TaskResult& task) {
  if (task.fingerprint.empty()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "evaluation " + std::to_string(evaluation.id) + ": the result of " +
                          task.task + " does not say of what it is: no fingerprint");
  }
  {
    EVALCAR_ASSIGN_OR_RETURN(
        Statement known,
        connection_->prepare(
            "SELECT result_id, evaluation_id FROM result WHERE weights_sha256 = ?1 AND kind = ?2 "
            "AND task = ?3 AND task_version = ?4 AND settings_sha256 = ?5 AND fingerprint = ?6",
            evaluation.weights_sha256, evaluation.kind, task.task, task.version, result_key,
            task.fingerprint));
    EVALCAR_ASSIGN_OR_RETURN(const bool row, known.step());
    if (row) {
      const std::int64_t result_id = known.integer(0);
      if (known.integer(1) == evaluation.id) return result_id;  // tried again for another task
      // Where its lines were pruned since, those that came with it now take their place.
      EVALCAR_RETURN_IF_ERROR(connection_->run(
          "UPDATE result SET evaluation_id = ?1 WHERE result_id = ?2 AND NOT EXISTS(SELECT 1 FROM "
          "scored_sample s WHERE s.evaluation_id = result.evaluation_id AND s.task = result.task "
          "AND s.fingerprint = result.fingerprint) AND EXISTS(SELECT 1 FROM scored_sample s WHERE "
          "s.evaluation_id = ?1 AND s.task = result.task AND s.fingerprint = result.fingerprint)",
          evaluation.id, result_id));
      if (connection_->changes() > 0) return result_id;
      // Else they are there already, under the evaluation that made the result.
      EVALCAR_RETURN_IF_ERROR(
          connection_->run("DELETE FROM scored_sample WHERE evaluation_id = ?1 AND task = ?2 AND "
                           "fingerprint = ?3",
                           evaluation.id, task.task, task.fingerprint));
      return result_id;
    }
  }
  EVALCAR_RETURN_IF_ERROR(connection_->run(
      "INSERT INTO result(evaluation_id, weights_sha256, kind, task, task_version, "
      "settings_sha256, fingerprint, alias, num_fewshot, n, n_original, n_effective, lmms_results, "
      "lmms_config, notes, question) "
      "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
      evaluation.id, evaluation.weights_sha256, evaluation.kind, task.task, task.version,
      result_key, task.fingerprint, task.alias, task.num_fewshot, task.n, task.n_original,
      task.n_effective, task.lmms_results, task.lmms_config, task.notes, task.question));
  const std::int64_t result_id = connection_->last_insert_id();
  EVALCAR_RETURN_IF_ERROR(insert_metrics(result_id, task));
  return result_id;
}

Status Store::link_task(const Evaluation& evaluation, const protocol::TaskResult& task,
                        std::int64_t position, std::optional<std::int64_t> result_id) {
  // What was asked for besides is no number of the step's series, and takes none's place.
  bool counts = result_id.has_value() && evaluation.settings.requested == 0;
  if (counts) {
    EVALCAR_ASSIGN_OR_RETURN(const bool yields, this->yields(evaluation, task.task));
    counts = !yields;
  }
  if (counts) {
    EVALCAR_RETURN_IF_ERROR(connection_->run(
        "UPDATE evaluation_task SET current = 0 WHERE run_id = ?1 AND step = ?2 AND kind = ?3 AND "
        "task = ?4 AND current = 1",
        evaluation.run_id, evaluation.step, evaluation.kind, task.task));
  }
  // A task that was measured before and fails now keeps its number.
  return connection_->run(
      "INSERT INTO evaluation_task(evaluation_id, task, position, result_id, error, run_id, step, "
      "kind, current, error_kind, circumstances) "
      "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) "
      "ON CONFLICT(evaluation_id, task) DO UPDATE SET position = excluded.position, "
      "result_id = excluded.result_id, error = excluded.error, current = excluded.current, "
      "error_kind = excluded.error_kind, circumstances = excluded.circumstances "
      "WHERE excluded.result_id IS NOT NULL OR result_id IS NULL",
      evaluation.id, task.task, position, result_id, task.error, evaluation.run_id, evaluation.step,
      evaluation.kind, counts, task.error_kind, task.circumstances);
}

Status Store::record_result(std::int64_t evaluation_id, const protocol::EvaluationResult& result) {
  crash_point("after_eval");
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*connection_));
  EVALCAR_RETURN_IF_ERROR(
      require_state(evaluation_id, std::array{EvaluationState::kEvaluating}, "a result"));
  EVALCAR_ASSIGN_OR_RETURN(const Evaluation evaluation, reader_.evaluation(evaluation_id));
  if (result.weights_sha256 != evaluation.weights_sha256) {
    return make_error(ErrorCode::kCorruption,
                      "evaluation " + std::to_string(evaluation_id) +
                          ": the result is of weights " + result.weights_sha256 +
                          ", expected those that were loaded, " + evaluation.weights_sha256 +
                          "; it is thrown away");
  }
  if (std::none_of(result.tasks.begin(), result.tasks.end(),
                   [](const protocol::TaskResult& task) { return task.error.empty(); })) {
    return make_error(ErrorCode::kInvalidArgument,
                      result.tasks.empty() ? "evaluation " + std::to_string(evaluation_id) +
                                                 ": no task in the result"
                                           : "every task failed; " + result.tasks.front().task +
                                                 ": " + result.tasks.front().error);
  }
  const std::string result_key = settings_sha256(evaluation.settings, evaluation.compute_dtype);
  EVALCAR_ASSIGN_OR_RETURN(const bool had_numbers, has_numbers(evaluation_id));
  const std::vector<std::string>& order = evaluation.settings.tasks;
  for (const protocol::TaskResult& task : result.tasks) {
    const std::int64_t position = std::find(order.begin(), order.end(), task.task) - order.begin();
    std::optional<std::int64_t> result_id;
    if (task.error.empty()) {
      EVALCAR_ASSIGN_OR_RETURN(result_id, insert_result(evaluation, result_key, task));
    }
    EVALCAR_RETURN_IF_ERROR(link_task(evaluation, task, position, result_id));
  }
  EVALCAR_RETURN_IF_ERROR(
      connection_->run("DELETE FROM answer WHERE evaluation_id = ?1", evaluation_id));
  EVALCAR_ASSIGN_OR_RETURN(const std::string failed, failed_tasks(evaluation_id));
  EVALCAR_RETURN_IF_ERROR(connection_->run(
      "UPDATE evaluation SET seconds = iif(?4, seconds, 0) + ?2, attn_implementation = ?3, "
      "stage = '', lease_path = iif(?5, '', lease_path) WHERE evaluation_id = ?1",
      evaluation_id, result.seconds, result.attn_implementation, had_numbers, failed.empty()));
  EVALCAR_RETURN_IF_ERROR(move(evaluation_id, EvaluationState::kScored, failed, "scored"));
  EVALCAR_RETURN_IF_ERROR(transaction.commit());
  crash_point("after_commit");
  return {};
}

Result<std::string> Store::failed_tasks(std::int64_t evaluation_id) {
  EVALCAR_ASSIGN_OR_RETURN(
      Statement failed,
      connection_->prepare("SELECT task, error FROM evaluation_task WHERE evaluation_id = ?1 AND "
                           "result_id IS NULL ORDER BY position",
                           evaluation_id));
  std::string text;
  while (true) {
    EVALCAR_ASSIGN_OR_RETURN(const bool row, failed.step());
    if (!row) break;
    const std::string task = failed.text(0);
    const std::string error = failed.text(1);
    text.append(text.empty() ? "not measured: " : "; ");
    text.append(error.starts_with(task) ? "" : task + ": ").append(error);
  }
  return text;
}

}  // namespace evalcar::state
