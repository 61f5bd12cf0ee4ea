// Scores of a part of the documents: told on the way, kept apart from the numbers.
#include <array>
#include <cmath>

#include "store/base/crash_point.h"
#include "store/state/sqlite.h"
#include "store/state/store.h"

namespace evalcar::state {
namespace {

Status insert_scores(Connection& connection, std::int64_t interim_id,
                     const protocol::InterimScore& score) {
  std::int64_t position = 0;
  for (const protocol::Metric& metric : score.metrics) {
    std::optional<double> value = metric.value;
    std::optional<double> error = metric.stderr_value;
    if (value.has_value() && !std::isfinite(*value)) value.reset();
    if (error.has_value() && !std::isfinite(*error)) error.reset();
    std::string missing = metric.missing;
    if (!value.has_value() && missing.empty()) missing = "no value was given";
    EVALCAR_RETURN_IF_ERROR(connection.run(
        "INSERT INTO interim_metric(interim_id, task, position, fingerprint, n, documents, notes, "
        "name, filter, value, stderr, stderr_source, missing, higher_is_better) VALUES(?1, ?2, ?3, "
        "?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
        interim_id, score.task, position++, score.fingerprint, score.n, score.documents,
        score.notes, metric.name, metric.filter, value, error, metric.stderr_source, missing,
        metric.higher_is_better));
  }
  return {};
}

}  // namespace

Result<InterimLine> Store::record_interim(
    std::int64_t evaluation_id, const protocol::Interim& interim, const std::string& key,
    std::int64_t after_seq,
    const std::function<Result<std::string>(std::int64_t seq,
                                            std::optional<std::int64_t> supersedes)>& make_line,
    std::optional<std::int64_t> written_seq) {
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*connection_));
  EVALCAR_RETURN_IF_ERROR(
      require_state(evaluation_id, std::array{EvaluationState::kEvaluating}, "an interim score"));
  EVALCAR_ASSIGN_OR_RETURN(const Evaluation evaluation, reader_.evaluation(evaluation_id));
  if (interim.weights_sha256 != evaluation.weights_sha256) {
    return make_error(ErrorCode::kCorruption,
                      "evaluation " + std::to_string(evaluation_id) +
                          ": the interim score is of weights " + interim.weights_sha256 +
                          ", expected those that were loaded, " + evaluation.weights_sha256);
  }
  InterimLine line;
  line.evaluation_id = evaluation_id;
  line.key = key;
  {
    EVALCAR_ASSIGN_OR_RETURN(
        Statement known,
        connection_->prepare(
            "SELECT seq, line, supersedes FROM interim WHERE evaluation_id = ?1 AND key = ?2",
            evaluation_id, key));
    EVALCAR_ASSIGN_OR_RETURN(const bool row, known.step());
    if (row) {
      line.seq = known.integer(0);
      line.line = known.text(1);
      line.supersedes = known.optional_integer(2);
      return line;
    }
  }
  EVALCAR_ASSIGN_OR_RETURN(line.seq, next_seq(after_seq, written_seq));
  {
    EVALCAR_ASSIGN_OR_RETURN(
        Statement earlier,
        connection_->prepare("SELECT max(i.seq) FROM interim i JOIN evaluation e USING "
                             "(evaluation_id) WHERE i.run_id = ?1 AND i.step = ?2 AND i.kind = ?3 "
                             "AND e.tasks = (SELECT tasks FROM evaluation WHERE evaluation_id = "
                             "?4)",
                             evaluation.run_id, evaluation.step, evaluation.kind, evaluation_id));
    EVALCAR_ASSIGN_OR_RETURN([[maybe_unused]] const bool row, earlier.step());
    line.supersedes = earlier.optional_integer(0);
  }
  EVALCAR_ASSIGN_OR_RETURN(line.line, make_line(line.seq, line.supersedes));
  EVALCAR_RETURN_IF_ERROR(connection_->run(
      "INSERT INTO interim(seq, evaluation_id, run_id, step, kind, key, fraction, weights_sha256, "
      "line, supersedes, told_at) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
      line.seq, evaluation_id, evaluation.run_id, evaluation.step, evaluation.kind, key,
      interim.fraction, interim.weights_sha256, line.line, line.supersedes, now()));
  const std::int64_t id = connection_->last_insert_id();
  for (const protocol::InterimScore& score : interim.tasks) {
    EVALCAR_RETURN_IF_ERROR(insert_scores(*connection_, id, score));
  }
  EVALCAR_RETURN_IF_ERROR(transaction.commit());
  crash_point("after_interim");
  return line;
}

}  // namespace evalcar::state
