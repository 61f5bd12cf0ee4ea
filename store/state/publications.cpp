// Which line of metrics.jsonl belongs to an evaluation: decided here, once, before it is written.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "store/base/crash_point.h"
#include "store/state/sqlite.h"
#include "store/state/store.h"

namespace evalcar::state {

Result<std::int64_t> Store::next_seq(std::int64_t after_seq, std::optional<std::int64_t> written) {
  EVALCAR_ASSIGN_OR_RETURN(
      Statement lines,  // each by an index, whatever is there
      connection_->prepare("SELECT max((SELECT coalesce(max(seq), 0) FROM publication), (SELECT "
                           "coalesce(max(seq), 0) FROM interim)), EXISTS(SELECT 1 FROM publication "
                           "WHERE seq = ?1) OR EXISTS(SELECT 1 FROM interim WHERE seq = ?1)",
                           written));
  EVALCAR_ASSIGN_OR_RETURN([[maybe_unused]] const bool row, lines.step());
  if (written.has_value() && lines.integer(1) == 0) return *written;
  return std::max(lines.integer(0), after_seq) + 1;
}

Result<Publication> Store::begin_publication(
    std::int64_t evaluation_id, std::int64_t after_seq,
    const std::function<Result<std::string>(std::int64_t seq, const Superseded& superseded)>&
        make_line,
    std::optional<std::int64_t> written_seq) {
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*connection_));
  EVALCAR_RETURN_IF_ERROR(require_state(
      evaluation_id, std::array{EvaluationState::kScored, EvaluationState::kPublished},
      "a publication"));
  EVALCAR_ASSIGN_OR_RETURN(const auto known, reader_.publication(evaluation_id));
  EVALCAR_ASSIGN_OR_RETURN(const EvaluationState state, state_of(evaluation_id));
  const bool tried_again = known.has_value() && !known->published_at.empty() &&
                           state == EvaluationState::kScored && written_seq != known->seq;
  if (known.has_value() && !tried_again) return *known;

  Publication publication;
  publication.evaluation_id = evaluation_id;
  Superseded superseded;
  EVALCAR_ASSIGN_OR_RETURN(publication.seq, next_seq(after_seq, written_seq));
  {
    EVALCAR_ASSIGN_OR_RETURN(
        Statement earlier,
        connection_->prepare(
            "SELECT max(p.seq) FROM publication p JOIN evaluation e USING (evaluation_id) "
            "JOIN evaluation own ON own.evaluation_id = ?1 "
            "WHERE e.run_id = own.run_id AND e.step = own.step AND e.kind = own.kind AND EXISTS("
            "SELECT 1 FROM evaluation_task a JOIN evaluation_task b ON a.task = b.task "
            "WHERE a.evaluation_id = e.evaluation_id AND b.evaluation_id = own.evaluation_id "
            "AND b.result_id IS NOT NULL)",
            evaluation_id));
    EVALCAR_ASSIGN_OR_RETURN([[maybe_unused]] const bool row, earlier.step());
    superseded.line = earlier.optional_integer(0);
  }
  {
    EVALCAR_ASSIGN_OR_RETURN(
        Statement interim,
        connection_->prepare(
            "SELECT max(i.seq) FROM interim i JOIN evaluation own ON own.evaluation_id = ?1 WHERE "
            "i.run_id = own.run_id AND i.step = own.step AND i.kind = own.kind AND EXISTS(SELECT 1 "
            "FROM interim_metric m JOIN "
            "evaluation_task t ON t.task = m.task WHERE m.interim_id = i.interim_id AND "
            "t.evaluation_id = own.evaluation_id AND t.result_id IS NOT NULL)",
            evaluation_id));
    EVALCAR_ASSIGN_OR_RETURN([[maybe_unused]] const bool row, interim.step());
    superseded.interim = interim.optional_integer(0);
  }
  if (!superseded.line.has_value()) superseded.line = superseded.interim;
  publication.supersedes = superseded.line;
  EVALCAR_ASSIGN_OR_RETURN(publication.line, make_line(publication.seq, superseded));
  EVALCAR_RETURN_IF_ERROR(
      connection_->run("DELETE FROM publication WHERE evaluation_id = ?1", evaluation_id));
  EVALCAR_RETURN_IF_ERROR(connection_->run(
      "INSERT INTO publication(seq, evaluation_id, line, supersedes) VALUES(?1, ?2, ?3, ?4)",
      publication.seq, evaluation_id, publication.line, publication.supersedes));
  EVALCAR_RETURN_IF_ERROR(transaction.commit());
  return publication;
}

Status Store::finish_publication(std::int64_t evaluation_id,
                                 const std::vector<std::string>& files) {
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*connection_));
  EVALCAR_ASSIGN_OR_RETURN(const std::string failed, failed_tasks(evaluation_id));
  EVALCAR_RETURN_IF_ERROR(move(evaluation_id, EvaluationState::kPublished, failed));
  EVALCAR_RETURN_IF_ERROR(connection_->run(
      "UPDATE publication SET files = ?2, published_at = ?3 WHERE evaluation_id = ?1",
      evaluation_id,
      nlohmann::json(files).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), now()));
  if (connection_->changes() != 1) {
    return make_error(ErrorCode::kInternal, "evaluation " + std::to_string(evaluation_id) +
                                                ": finished without a publication");
  }
  EVALCAR_RETURN_IF_ERROR(transaction.commit());
  crash_point("after_mark");
  return {};
}

Status Store::finish_unlisted(std::int64_t evaluation_id) {
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*connection_));
  EVALCAR_ASSIGN_OR_RETURN(const Evaluation evaluation, reader_.evaluation(evaluation_id));
  if (evaluation.settings.requested == 0) {
    return make_error(ErrorCode::kInternal, "evaluation " + std::to_string(evaluation_id) +
                                                " is of the configured series: it has a line");
  }
  EVALCAR_ASSIGN_OR_RETURN(const std::string failed, failed_tasks(evaluation_id));
  EVALCAR_RETURN_IF_ERROR(move(evaluation_id, EvaluationState::kPublished, failed));
  return transaction.commit();
}

Result<std::int64_t> Store::prune(std::int64_t evaluation_id, std::span<const std::int64_t> with) {
  EVALCAR_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*connection_));
  EVALCAR_RETURN_IF_ERROR(
      require_state(evaluation_id, std::array{EvaluationState::kPublished}, "pruning"));
  const std::string pruned = nlohmann::json(std::vector(with.begin(), with.end())).dump();
  EVALCAR_RETURN_IF_ERROR(connection_->run(
      "DELETE FROM scored_sample WHERE evaluation_id = ?1 AND NOT EXISTS("
      "SELECT 1 FROM result r JOIN evaluation_task t USING (result_id) "
      "WHERE r.evaluation_id = scored_sample.evaluation_id AND r.task = scored_sample.task "
      "AND r.fingerprint = scored_sample.fingerprint "
      "AND t.evaluation_id NOT IN (SELECT value FROM json_each(?2)))",
      evaluation_id, pruned));
  const std::int64_t samples = connection_->changes();
  // What no sample is of any more, of no step. By evaluation, since samples are many and large.
  EVALCAR_RETURN_IF_ERROR(connection_->run(
      "DELETE FROM document_pictures WHERE (task, fingerprint) IN ("
      "SELECT d.task, d.fingerprint FROM (SELECT DISTINCT task, fingerprint FROM "
      "document_pictures) d WHERE NOT EXISTS(SELECT 1 FROM evaluation e CROSS JOIN scored_sample s "
      "WHERE s.evaluation_id = e.evaluation_id AND s.task = d.task AND s.fingerprint = "
      "d.fingerprint))"));
  EVALCAR_RETURN_IF_ERROR(connection_->run(
      "UPDATE publication SET files = '[]' WHERE evaluation_id = ?1", evaluation_id));
  EVALCAR_RETURN_IF_ERROR(transaction.commit());
  return samples;
}

}  // namespace evalcar::state
