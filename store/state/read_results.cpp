// What was measured: questions about answers, numbers and samples.
#include <span>

#include "store/base/hash.h"
#include "store/state/reader.h"
#include "store/state/row_columns.h"
#include "store/state/sqlite.h"

namespace evalcar::state {

Result<std::vector<protocol::Answered>> Reader::answers(std::int64_t evaluation_id) const {
  return collect<protocol::Answered>(
      connection_->prepare(
          "SELECT task, doc_id, text, output_tokens, fingerprint, cut_off FROM answer "
          "WHERE evaluation_id = ?1 AND fingerprint <> '' ORDER BY task, doc_id",
          evaluation_id),
      [](const Statement& row) -> Result<protocol::Answered> {
        protocol::Answered answer;
        std::optional<std::int64_t> cut_off;
        Columns(row) >> answer.task >> answer.doc_id >> answer.text >> answer.output_tokens >>
            answer.fingerprint >> cut_off;
        if (cut_off.has_value()) answer.cut_off = *cut_off != 0;
        return answer;
      });
}

namespace {

Result<std::vector<protocol::Metric>> metrics_of(Connection& connection, std::int64_t result_id) {
  return collect<protocol::Metric>(
      connection.prepare("SELECT name, filter, value, stderr, stderr_source, missing, "
                         "higher_is_better FROM metric WHERE result_id = ?1 ORDER BY position",
                         result_id),
      [](const Statement& row) -> Result<protocol::Metric> {
        protocol::Metric metric;
        Columns(row) >> metric.name >> metric.filter >> metric.value >> metric.stderr_value >>
            metric.stderr_source >> metric.missing >> metric.higher_is_better;
        return metric;
      });
}

}  // namespace

Result<protocol::EvaluationResult> Reader::result(std::int64_t evaluation_id) const {
  EVALCAR_ASSIGN_OR_RETURN(const Evaluation evaluation, this->evaluation(evaluation_id));
  if (evaluation.state != EvaluationState::kScored &&
      evaluation.state != EvaluationState::kPublished) {
    return make_error(ErrorCode::kNotFound, "evaluation " + std::to_string(evaluation_id) +
                                                " has no result: it is " +
                                                std::string(state_name(evaluation.state)));
  }
  protocol::EvaluationResult result;
  result.weights_sha256 = evaluation.weights_sha256;
  result.seconds = evaluation.seconds;
  EVALCAR_ASSIGN_OR_RETURN(
      result.tasks,
      collect<protocol::TaskResult>(
          connection_->prepare(
              "SELECT t.task, t.error, r.result_id, r.task_version, r.alias, r.num_fewshot, r.n, "
              "r.n_original, r.lmms_results, r.lmms_config, r.notes, e.attn_implementation, "
              "r.fingerprint, r.n_effective, r.question "
              "FROM evaluation_task t JOIN evaluation e USING (evaluation_id) LEFT JOIN result r "
              "USING (result_id) WHERE t.evaluation_id = ?1 ORDER BY t.position",
              evaluation_id),
          [&](const Statement& row) -> Result<protocol::TaskResult> {
            protocol::TaskResult task;
            task.task = row.text(0);
            task.error = row.text(1);
            task.version = row.text(3);
            task.alias = row.text(4);
            task.num_fewshot = row.integer(5);
            task.n = row.integer(6);
            task.n_original = row.integer(7);
            task.lmms_results = row.text(8);
            task.lmms_config = row.text(9);
            task.notes = row.text(10);
            result.attn_implementation = row.text(11);
            task.fingerprint = row.text(12);
            task.n_effective = row.integer(13);
            task.question = row.text(14);
            if (!row.is_null(2)) {
              EVALCAR_ASSIGN_OR_RETURN(task.metrics, metrics_of(*connection_, row.integer(2)));
            }
            return task;
          }));
  return result;
}

Result<bool> Reader::is_return(std::int64_t evaluation_id) const {
  EVALCAR_ASSIGN_OR_RETURN(
      Statement earlier,
      connection_->prepare(
          "SELECT 1 FROM evaluation own JOIN checkpoint oc ON oc.checkpoint_id = own.checkpoint_id "
          "JOIN evaluation e ON e.run_id = own.run_id AND e.step = own.step AND e.kind = own.kind "
          "AND e.settings_sha256 = own.settings_sha256 AND e.tasks = own.tasks "
          "AND e.weights_sha256 = own.weights_sha256 AND e.state IN ('scored', 'published') "
          "JOIN checkpoint c ON c.checkpoint_id = e.checkpoint_id "
          "WHERE own.evaluation_id = ?1 AND c.name = oc.name AND c.generation < oc.generation "
          "LIMIT 1",
          evaluation_id));
  return earlier.step();
}

Result<std::vector<FailedTask>> Reader::failed_tasks(std::int64_t evaluation_id) const {
  return collect<FailedTask>(
      connection_->prepare("SELECT task, error, error_kind, circumstances FROM evaluation_task "
                           "WHERE evaluation_id = ?1 AND result_id IS NULL ORDER BY position",
                           evaluation_id),
      [](const Statement& row) -> Result<FailedTask> {
        return FailedTask{row.text(0), row.text(1), row.text(2), row.text(3)};
      });
}

Result<std::map<std::int64_t, std::vector<std::string>>> Reader::flags(
    std::optional<std::int64_t> run_id) const {
  using Flag = std::pair<std::int64_t, std::string>;
  EVALCAR_ASSIGN_OR_RETURN(
      const auto rows,
      collect<Flag>(
          connection_->prepare(
              "SELECT t.evaluation_id, t.task || ': ' || f.value FROM evaluation_task t JOIN "
              "result r USING (result_id), json_each(iif(json_valid(r.notes), r.notes, '{}'), "
              "'$.flags') f WHERE (?1 IS NULL OR t.run_id = ?1) AND r.notes LIKE '%\"flags\"%' "
              "ORDER BY t.evaluation_id, t.position, f.id",
              run_id),
          [](const Statement& row) -> Result<Flag> { return Flag{row.integer(0), row.text(1)}; }));
  std::map<std::int64_t, std::vector<std::string>> flags;
  for (const auto& [evaluation, flag] : rows) flags[evaluation].push_back(flag);
  return flags;
}

Result<std::vector<std::string>> Reader::measured_tasks(std::int64_t evaluation_id) const {
  return collect<std::string>(
      connection_->prepare("SELECT task FROM evaluation_task WHERE evaluation_id = ?1 AND "
                           "result_id IS NOT NULL ORDER BY position",
                           evaluation_id),
      [](const Statement& row) -> Result<std::string> { return row.text(0); });
}

Status Reader::for_each_sample(std::int64_t evaluation_id, const std::string& task,
                               const std::function<Status(std::string_view line)>& line) const {
  EVALCAR_ASSIGN_OR_RETURN(
      Statement rows,
      connection_->prepare("SELECT s.line FROM evaluation_task t JOIN result r USING (result_id) "
                           "JOIN scored_sample s ON s.evaluation_id = r.evaluation_id AND s.task = "
                           "r.task AND s.fingerprint = r.fingerprint WHERE t.evaluation_id = ?1 "
                           "AND t.task = ?2 ORDER BY s.doc_id",
                           evaluation_id, task));
  while (true) {
    EVALCAR_ASSIGN_OR_RETURN(const bool row, rows.step());
    if (!row) return {};
    EVALCAR_RETURN_IF_ERROR(line(rows.text(0)));
  }
}

Result<std::vector<std::string>> Reader::sample_pictures(std::int64_t evaluation_id,
                                                         const std::string& task,
                                                         std::int64_t doc_id) const {
  return collect<std::string>(
      connection_->prepare("SELECT name.value FROM evaluation_task t JOIN result r USING "
                           "(result_id) JOIN document_pictures p ON p.task = r.task AND "
                           "p.fingerprint = r.fingerprint AND p.doc_id = ?3, "
                           "json_each(iif(json_valid(p.pictures), p.pictures, '[]')) name "
                           "WHERE t.evaluation_id = ?1 AND t.task = ?2 ORDER BY name.id",
                           evaluation_id, task, doc_id),
      [](const Statement& row) -> Result<std::string> { return row.text(0); });
}

Status Reader::for_each_document_pictures(
    std::int64_t evaluation_id, const std::string& task,
    const std::function<void(std::int64_t doc_id, std::string_view names)>& take) const {
  EVALCAR_ASSIGN_OR_RETURN(
      Statement rows,
      connection_->prepare("SELECT p.doc_id, p.pictures FROM evaluation_task t JOIN result r USING "
                           "(result_id) JOIN document_pictures p ON p.task = r.task AND "
                           "p.fingerprint = r.fingerprint WHERE t.evaluation_id = ?1 AND t.task = "
                           "?2 AND p.pictures <> '[]' ORDER BY p.doc_id",
                           evaluation_id, task));
  while (true) {
    EVALCAR_ASSIGN_OR_RETURN(const bool row, rows.step());
    if (!row) return {};
    take(rows.integer(0), rows.text(1));
  }
}

Status Reader::for_each_picture(const std::function<void(std::string_view name)>& take) const {
  EVALCAR_ASSIGN_OR_RETURN(
      Statement rows, connection_->prepare("SELECT name.value FROM document_pictures, json_each("
                                           "iif(json_valid(pictures), pictures, '[]')) name"));
  while (true) {
    EVALCAR_ASSIGN_OR_RETURN(const bool row, rows.step());
    if (!row) return {};
    take(rows.text(0));
  }
}

Result<std::vector<MetricRow>> Reader::metrics(const MetricFilter& filter) const {
  std::vector<MetricRow> found;
  EVALCAR_RETURN_IF_ERROR(
      for_each_metric(filter, [&found](const MetricRow& row) { found.push_back(row); }));
  return found;
}

Status Reader::for_each_metric(const MetricFilter& filter,
                               const std::function<void(const MetricRow& row)>& take) const {
  EVALCAR_ASSIGN_OR_RETURN(
      Statement rows,
      connection_->prepare(
          "SELECT run, step, checkpoint_type, task, metric, filter, value, stderr, stderr_source, "
          "missing, higher_is_better, n, weights_sha256, finished_at, evaluation_id, "
          "settings_sha256, configured, question_sha256 FROM metrics "
          "WHERE (?1 = '' OR run = ?1) AND (?2 = '' OR task = ?2) AND (?3 = '' OR metric = ?3) "
          "AND (?4 = '' OR checkpoint_type = ?4) "
          "ORDER BY run, step, task, metric, filter, checkpoint_type DESC",
          filter.run, filter.task, filter.metric, filter.checkpoint_type));
  while (true) {
    EVALCAR_ASSIGN_OR_RETURN(const bool row, rows.step());
    if (!row) return {};
    MetricRow metric;
    Columns(rows) >> metric.run >> metric.step >> metric.checkpoint_type >> metric.task >>
        metric.metric >> metric.filter >> metric.value >> metric.stderr_value >>
        metric.stderr_source >> metric.missing >> metric.higher_is_better >> metric.n >>
        metric.weights_sha256 >> metric.finished_at >> metric.evaluation_id >>
        metric.settings_sha256 >> metric.configured >> metric.question;
    take(metric);
  }
}

Result<std::uint64_t> Reader::numbers_version(std::int64_t run_id) const {
  EVALCAR_ASSIGN_OR_RETURN(
      Statement rows,
      connection_->prepare(
          "SELECT t.evaluation_id, t.result_id, e.settings_sha256 IN (run.settings_sha256, "
          "run.average_settings_sha256) FROM evaluation_task t JOIN evaluation e USING "
          "(evaluation_id) JOIN run ON run.run_id = t.run_id WHERE t.current = 1 AND t.run_id = ?1 "
          "ORDER BY t.step, t.kind, t.task",
          run_id));
  std::vector<std::int64_t> numbers;
  while (true) {
    EVALCAR_ASSIGN_OR_RETURN(const bool row, rows.step());
    if (!row) return xxh3_64(std::as_bytes(std::span(numbers)));
    numbers.push_back(rows.integer(0));
    numbers.push_back(rows.integer(1));
    numbers.push_back(rows.integer(2));
  }
}

Result<std::int64_t> Reader::sample_count(std::int64_t evaluation_id) const {
  EVALCAR_ASSIGN_OR_RETURN(
      Statement count,
      connection_->prepare("SELECT count(*) FROM scored_sample WHERE evaluation_id = ?1",
                           evaluation_id));
  EVALCAR_ASSIGN_OR_RETURN([[maybe_unused]] const bool row, count.step());
  return count.integer(0);
}

Result<std::vector<std::string>> Reader::tasks_with_numbers(std::int64_t evaluation_id) const {
  return collect<std::string>(
      connection_->prepare("SELECT t.task FROM evaluation_task t JOIN evaluation e ON "
                           "e.evaluation_id = ?1 AND e.run_id = t.run_id AND e.step = t.step AND "
                           "e.kind = t.kind WHERE t.current = 1",
                           evaluation_id),
      [](const Statement& row) -> Result<std::string> { return row.text(0); });
}

}  // namespace evalcar::state
