// Rows made again from what was published: the database, or its newest part, was lost.
#include <nlohmann/json.hpp>

#include "store/state/sqlite.h"
#include "store/state/store.h"

namespace evalcar::state {
namespace {

/// Whether a query of these values has a row.
template <typename... Values>
Result<bool> has_row(Connection& connection, std::string_view sql, const Values&... values) {
  EVALCAR_ASSIGN_OR_RETURN(Statement found, connection.prepare(sql, values...));
  return found.step();
}

}  // namespace

Result<std::optional<std::int64_t>> Store::checkpoint_of_published(
    std::int64_t run_id, const PublishedEvaluation& published) {
  const CheckpointObservation& seen = published.checkpoint;
  std::optional<std::int64_t> id;
  {
    EVALCAR_ASSIGN_OR_RETURN(
        Statement known,
        connection_->prepare("SELECT checkpoint_id FROM checkpoint WHERE run_id = ?1 AND name = ?2 "
                             "AND generation = ?3",
                             run_id, seen.name, published.generation));
    EVALCAR_ASSIGN_OR_RETURN(const bool row, known.step());
    if (row) id = known.integer(0);
  }
  if (!id.has_value()) {
    EVALCAR_ASSIGN_OR_RETURN(id, insert_checkpoint(run_id, seen, published.generation));
    EVALCAR_RETURN_IF_ERROR(connection_->run(
        "UPDATE checkpoint SET gone_at = ?2 WHERE checkpoint_id = ?1", *id, now()));
  }
  for (const KindObservation& kind : seen.kinds) {
    EVALCAR_ASSIGN_OR_RETURN(
        const bool others,
        has_row(*connection_,
                "SELECT 1 FROM checkpoint_kind WHERE checkpoint_id = ?1 AND kind = ?2 AND "
                "complete = 1 AND fingerprint <> ?3",
                *id, kind.kind, kind.fingerprint));
    if (others) return std::optional<std::int64_t>();
  }
  EVALCAR_RETURN_IF_ERROR(record_kinds(*id, seen));
  return id;
}

Status Store::insert_published_numbers(std::int64_t evaluation_id,
                                       const PublishedEvaluation& published) {
  EVALCAR_ASSIGN_OR_RETURN(const Evaluation evaluation, reader_.evaluation(evaluation_id));
  for (const protocol::Scored& sample : published.samples) {
    EVALCAR_RETURN_IF_ERROR(connection_->run(
        "INSERT OR REPLACE INTO scored_sample(evaluation_id, task, fingerprint, doc_id, line) "
        "VALUES(?1, ?2, ?3, ?4, ?5)",
        evaluation_id, sample.task, sample.fingerprint, sample.doc_id, sample.line));
  }
  const std::string result_key = settings_sha256(published.settings, published.compute_dtype);
  std::int64_t position = 0;
  for (const protocol::TaskResult& task : published.result.tasks) {
    std::optional<std::int64_t> result_id;
    if (task.error.empty()) {
      EVALCAR_ASSIGN_OR_RETURN(result_id, insert_result(evaluation, result_key, task));
    }
    EVALCAR_RETURN_IF_ERROR(link_task(evaluation, task, position++, result_id));
  }
  return {};
}

Result<bool> Store::take_published(std::int64_t run_id, const PublishedEvaluation& published) {
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*connection_));
  const Publication& line = published.publication;
  EVALCAR_ASSIGN_OR_RETURN(
      const bool seq_taken,
      has_row(*connection_,
              "SELECT 1 FROM publication WHERE seq = ?1 UNION ALL SELECT 1 FROM interim WHERE seq "
              "= ?1",
              line.seq));
  if (seq_taken) return false;
  EVALCAR_ASSIGN_OR_RETURN(const auto checkpoint, checkpoint_of_published(run_id, published));
  if (!checkpoint.has_value()) return false;
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t id, plan_row({*checkpoint, published.kind,
                                                            published.dtype, published.settings}));
  EVALCAR_ASSIGN_OR_RETURN(const bool measured, has_numbers(id));
  if (measured) return false;

  for (const char* const table : {"answer", "scored_sample"}) {
    EVALCAR_RETURN_IF_ERROR(
        connection_->run(std::string("DELETE FROM ") + table + " WHERE evaluation_id = ?1", id));
  }
  EVALCAR_RETURN_IF_ERROR(
      connection_->run("UPDATE attempt SET ended_at = ?2, outcome = 'interrupted', message = 'the "
                       "numbers were published before' WHERE evaluation_id = ?1 AND outcome = "
                       "'running'",
                       id, now()));
  EVALCAR_RETURN_IF_ERROR(connection_->run(
      "UPDATE evaluation SET state = 'published', weights_sha256 = ?2, compute_dtype = ?3, "
      "attn_implementation = ?4, seconds = ?5, finished_at = ?6, updated_at = ?7, lease_path = '', "
      "next_try_at = '', stage = '' WHERE evaluation_id = ?1",
      id, published.result.weights_sha256, published.compute_dtype,
      published.result.attn_implementation, published.result.seconds, published.finished_at,
      now()));
  EVALCAR_RETURN_IF_ERROR(insert_published_numbers(id, published));
  EVALCAR_ASSIGN_OR_RETURN(const std::string failed, failed_tasks(id));
  EVALCAR_RETURN_IF_ERROR(
      connection_->run("UPDATE evaluation SET reason = ?2 WHERE evaluation_id = ?1", id, failed));
  EVALCAR_RETURN_IF_ERROR(connection_->run(
      "INSERT INTO publication(seq, evaluation_id, line, supersedes, files, published_at) "
      "VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
      line.seq, id, line.line, line.supersedes,
      nlohmann::json(published.files)
          .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
      line.published_at));
  EVALCAR_RETURN_IF_ERROR(transaction.commit());
  return true;
}

}  // namespace evalcar::state
