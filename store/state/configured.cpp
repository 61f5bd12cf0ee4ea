// Which of a run's numbers count: those that were measured with the settings of its configuration.
//
// A configuration may change and come back, and all of its evaluations keep their results. So each
// step shows the number of today's settings where it has one, however many were measured since; and
// only where it has none, the latest of others, which the views tell apart (`configured`). What was
// measured of files that were rewritten since comes after all that was measured of the new ones.
#include "store/state/sqlite.h"
#include "store/state/store.h"

namespace evalcar::state {

Status Store::set_configured(std::int64_t run_id, const ConfiguredSettings& now) {
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*connection_));
  EVALCAR_RETURN_IF_ERROR(connection_->run(
      "UPDATE run SET settings_sha256 = ?2, average_settings_sha256 = ?3 WHERE run_id = ?1 AND "
      "(settings_sha256, average_settings_sha256) <> (?2, ?3)",
      run_id, now.sha256, now.average_sha256));
  if (connection_->changes() == 0) return {};
  EVALCAR_RETURN_IF_ERROR(connection_->run(
      "UPDATE evaluation_task SET current = 0 WHERE run_id = ?1 AND current = 1", run_id));
  // The latest is that of the last line: clocks may have been set back. What has none yet is newer.
  EVALCAR_RETURN_IF_ERROR(connection_->run(
      "UPDATE evaluation_task SET current = 1 WHERE (evaluation_id, task) IN ("
      "SELECT evaluation_id, task FROM (SELECT evaluation_id, task, row_number() OVER ("
      "PARTITION BY step, kind, task ORDER BY generation < newest AND weights_sha256 <> "
      "its_weights, "
      "settings_sha256 = iif(kind = 'average', ?3, ?2) DESC, seq IS NULL DESC, seq DESC, "
      "finished_at DESC, evaluation_id DESC) AS place FROM ("
      "SELECT t.evaluation_id, t.task, t.step, t.kind, e.settings_sha256, e.finished_at, p.seq, "
      "c.generation, max(c.generation) OVER same AS newest, e.weights_sha256, "
      "first_value(e.weights_sha256) OVER (same ORDER BY c.generation DESC) AS its_weights "
      "FROM evaluation_task t JOIN evaluation e USING (evaluation_id) "
      "JOIN checkpoint c USING (checkpoint_id) LEFT JOIN publication p USING (evaluation_id) "
      "WHERE t.run_id = ?1 AND t.result_id IS NOT NULL "
      "AND coalesce(json_extract(e.settings, '$.requested'), 0) = 0 "
      // Averages over another number of checkpoints are of other weights.
      "WINDOW same AS (PARTITION BY t.step, t.kind, t.task, c.name, "
      "coalesce(json_extract(e.settings, '$.average_last'), 0)))) WHERE place = 1)",
      run_id, now.sha256, now.average_sha256));
  return transaction.commit();
}

Result<bool> Store::yields(const Evaluation& evaluation, const std::string& task) {
  EVALCAR_ASSIGN_OR_RETURN(
      Statement written_again,
      connection_->prepare(
          "SELECT 1 FROM evaluation_task t JOIN evaluation e USING (evaluation_id) JOIN checkpoint "
          "c USING (checkpoint_id) WHERE t.run_id = ?1 AND t.step = ?2 AND t.kind = ?3 AND t.task "
          "= ?4 AND t.current = 1 AND c.name = ?5 AND c.generation > ?6 AND e.weights_sha256 <> ?7 "
          "AND coalesce(json_extract(e.settings, '$.average_last'), 0) = ?8",
          evaluation.run_id, evaluation.step, evaluation.kind, task, evaluation.checkpoint,
          evaluation.generation, evaluation.weights_sha256, evaluation.settings.average_last));
  EVALCAR_ASSIGN_OR_RETURN(const bool is_older, written_again.step());
  if (is_older) return true;
  EVALCAR_ASSIGN_OR_RETURN(
      Statement configured,
      connection_->prepare(
          "SELECT 1 FROM evaluation_task t JOIN evaluation e USING (evaluation_id) JOIN run ON "
          "run.run_id = t.run_id WHERE t.run_id = ?1 AND t.step = ?2 AND t.kind = ?3 AND t.task = "
          "?4 AND t.current = 1 AND e.settings_sha256 <> ?5 AND e.settings_sha256 = "
          "iif(t.kind = 'average', run.average_settings_sha256, run.settings_sha256)",
          evaluation.run_id, evaluation.step, evaluation.kind, task, evaluation.settings_sha256));
  return configured.step();
}

}  // namespace evalcar::state
