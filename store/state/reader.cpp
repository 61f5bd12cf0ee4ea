#include "store/state/reader.h"

#include <nlohmann/json.hpp>

#include "store/state/schema.h"
#include "store/state/sqlite.h"

namespace evalcar::state {
namespace {

/// Collects `make(row)` of every row of a query.
template <typename T, typename Make>
Result<std::vector<T>> collect(Result<Statement> rows, const Make& make) {
  if (!rows.has_value()) return std::move(rows).error();
  std::vector<T> found;
  while (true) {
    EVALCAR_ASSIGN_OR_RETURN(const bool row, rows->step());
    if (!row) return found;
    Result<T> one = make(*rows);
    if (!one.has_value()) return std::move(one).error();
    found.push_back(std::move(one).value());
  }
}

template <typename T>
Result<T> only(Result<std::vector<T>> found, const std::string& what) {
  if (!found.has_value()) return std::move(found).error();
  if (found->empty()) return make_error(ErrorCode::kNotFound, "no " + what);
  return std::move(found->front());
}

/// Reads the columns of a row one after the other, in the order of the SELECT.
class Columns {
 public:
  explicit Columns(const Statement& row) : row_(row) {}
  Columns& operator>>(std::int64_t& to) { return to = row_.integer(next_++), *this; }
  Columns& operator>>(std::uint64_t& to) {
    to = static_cast<std::uint64_t>(row_.integer(next_++));
    return *this;
  }
  Columns& operator>>(bool& to) { return to = row_.integer(next_++) != 0, *this; }
  Columns& operator>>(double& to) { return to = row_.real(next_++), *this; }
  Columns& operator>>(std::string& to) { return to = row_.text(next_++), *this; }
  Columns& operator>>(std::optional<std::int64_t>& to) {
    return to = row_.optional_integer(next_++), *this;
  }
  Columns& operator>>(std::optional<double>& to) { return to = row_.optional_real(next_++), *this; }

 private:
  const Statement& row_;
  int next_ = 0;
};

/// The text of the only column of the first row; "" without a row.
Result<std::string> text_or_empty(Result<Statement> rows) {
  if (!rows.has_value()) return std::move(rows).error();
  EVALCAR_ASSIGN_OR_RETURN(const bool found, rows->step());
  return found ? rows->text(0) : std::string();
}

constexpr std::string_view kRuns =
    "SELECT run_id, name, output_dir, generation, created_at, mark FROM run ORDER BY run_id";

constexpr std::string_view kCheckpoints =
    "SELECT c.checkpoint_id, c.run_id, run.name, c.name, c.path, c.step, c.generation, c.layout, "
    "c.device, c.inode, c.seen_at, c.gone_at FROM checkpoint c JOIN run USING (run_id) "
    "WHERE (?1 IS NULL OR c.run_id = ?1) AND (?2 IS NULL OR c.checkpoint_id = ?2) "
    "ORDER BY c.step, c.generation, c.checkpoint_id";

Result<Checkpoint> checkpoint_of(const Statement& row) {
  Checkpoint checkpoint;
  Columns(row) >> checkpoint.id >> checkpoint.run_id >> checkpoint.run >> checkpoint.name >>
      checkpoint.path >> checkpoint.step >> checkpoint.generation >> checkpoint.layout >>
      checkpoint.device >> checkpoint.inode >> checkpoint.seen_at >> checkpoint.gone_at;
  return checkpoint;
}

constexpr std::string_view kEvaluations =
    "SELECT e.evaluation_id, e.run_id, run.name, e.checkpoint_id, c.name, c.path, c.layout, "
    "e.step, c.generation, e.kind, e.dtype, e.settings, e.settings_sha256, e.state, e.reason, "
    "e.lease_path, e.weights_sha256, e.stage, e.progress_done, e.progress_total, e.attempts, "
    "e.failures, e.next_try_at, e.created_at, e.updated_at, e.finished_at, e.seconds, "
    "e.compute_dtype, e.asked "
    "FROM evaluation e JOIN run USING (run_id) JOIN checkpoint c USING (checkpoint_id) "
    "WHERE (?1 IS NULL OR e.evaluation_id = ?1) AND (?2 IS NULL OR e.run_id = ?2) "
    "AND (?3 IS NULL OR e.checkpoint_id = ?3) AND (?4 IS NULL OR e.step = ?4) "
    "AND (?5 = '' OR e.kind = ?5) AND (?6 = '' OR instr(?6, ' ' || e.state || ' ') > 0) "
    "AND (?7 = 0 OR e.lease_path <> '') "
    "AND (?8 = 0 OR (e.state = 'published' AND e.reason <> '')) "
    "ORDER BY e.step, c.generation, e.kind DESC, e.evaluation_id";

Result<Evaluation> evaluation_of(const Statement& row) {
  Evaluation e;
  std::string settings;
  std::string state;
  Columns(row) >> e.id >> e.run_id >> e.run >> e.checkpoint_id >> e.checkpoint >>
      e.checkpoint_path >> e.layout >> e.step >> e.generation >> e.kind >> e.dtype >> settings >>
      e.settings_sha256 >> state >> e.reason >> e.lease_path >> e.weights_sha256 >> e.stage >>
      e.progress_done >> e.progress_total >> e.attempts >> e.failures >> e.next_try_at >>
      e.created_at >> e.updated_at >> e.finished_at >> e.seconds >> e.compute_dtype >> e.asked;
  EVALCAR_ASSIGN_OR_RETURN(e.settings, protocol::decode_settings(settings));
  const auto known = state_from_name(state);
  if (!known.has_value()) {
    return make_error(ErrorCode::kCorruption, "evaluation " + std::to_string(e.id) +
                                                  " has the unknown state '" + state + "'");
  }
  e.state = *known;
  return e;
}

Result<Publication> publication_of(const Statement& row) {
  Publication publication;
  std::string files;
  Columns(row) >> publication.seq >> publication.evaluation_id >> publication.line >>
      publication.supersedes >> publication.published_at >> files;
  const auto list = nlohmann::json::parse(files, nullptr, false);
  for (const auto& file : list) {
    if (file.is_string()) publication.files.push_back(file.get<std::string>());
  }
  return publication;
}

}  // namespace

Reader::Reader(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}

Result<Reader> Reader::open(const std::string& path) {
  EVALCAR_ASSIGN_OR_RETURN(auto connection,
                           Connection::open(path, Connection::Mode::kReadOnly, 5'000));
  EVALCAR_ASSIGN_OR_RETURN(const std::int64_t version, check_schema(*connection));
  if (version != kSchemaVersion) {
    return make_error(ErrorCode::kUnsupported,
                      path + ": schema version " + std::to_string(version) + ", expected " +
                          std::to_string(kSchemaVersion) +
                          "; `evalcar run` makes or migrates the database when it starts");
  }
  return Reader(std::move(connection));
}

std::int64_t Reader::changes() const { return connection_->total_changes(); }

Result<std::vector<Run>> Reader::runs() const {
  return collect<Run>(connection_->prepare(kRuns), [](const Statement& row) -> Result<Run> {
    Run run;
    Columns(row) >> run.id >> run.name >> run.output_dir >> run.generation >> run.created_at >>
        run.mark;
    return run;
  });
}

Result<std::vector<Checkpoint>> Reader::checkpoints(std::int64_t run_id) const {
  return collect<Checkpoint>(
      connection_->prepare(kCheckpoints, run_id, std::optional<std::int64_t>{}), checkpoint_of);
}

Result<Checkpoint> Reader::checkpoint(std::int64_t checkpoint_id) const {
  return only<Checkpoint>(
      collect<Checkpoint>(
          connection_->prepare(kCheckpoints, std::optional<std::int64_t>{}, checkpoint_id),
          checkpoint_of),
      "checkpoint " + std::to_string(checkpoint_id));
}

Result<std::string> Reader::incomplete_reason(std::int64_t checkpoint_id,
                                              std::string_view kind) const {
  return text_or_empty(
      connection_->prepare("SELECT reason FROM checkpoint_kind WHERE checkpoint_id "
                           "= ?1 AND kind = ?2 AND complete = 0",
                           checkpoint_id, kind));
}

Result<std::vector<KnownKind>> Reader::known_kinds(std::int64_t run_id) const {
  return collect<KnownKind>(
      connection_->prepare("SELECT c.step, c.name, k.kind, k.fingerprint, k.files "
                           "FROM checkpoint c JOIN checkpoint_kind k USING (checkpoint_id) "
                           "WHERE c.run_id = ?1 AND k.complete = 1 AND c.generation = (SELECT "
                           "max(n.generation) FROM checkpoint n JOIN checkpoint_kind m USING "
                           "(checkpoint_id) WHERE n.run_id = ?1 AND n.name = c.name AND "
                           "m.kind = k.kind AND m.complete = 1) "
                           "ORDER BY c.step, k.kind",
                           run_id),
      [](const Statement& row) -> Result<KnownKind> {
        return KnownKind{row.integer(0), row.text(1), row.text(2), row.text(3),
                         decode_files(row.text(4))};
      });
}

namespace {

std::map<std::string, std::uint64_t> decode_hashes(const std::string& text) {
  std::map<std::string, std::uint64_t> by_path;
  const auto hashes = nlohmann::json::parse(text, nullptr, false);
  if (!hashes.is_object()) return by_path;
  for (const auto& [path, hash] : hashes.items()) {
    if (hash.is_number_unsigned()) by_path[path] = hash.get<std::uint64_t>();
  }
  return by_path;
}

}  // namespace

Result<std::vector<UnfinishedFolder>> Reader::unfinished(std::int64_t run_id) const {
  return collect<UnfinishedFolder>(
      connection_->prepare("SELECT step, files, older, end_ns, tails, older_tails FROM "
                           "unfinished_folder WHERE run_id = ?1",
                           run_id),
      [](const Statement& row) -> Result<UnfinishedFolder> {
        return UnfinishedFolder{
            row.integer(0),          decode_files(row.text(1)),  decode_files(row.text(2)),
            row.optional_integer(3), decode_hashes(row.text(4)), decode_hashes(row.text(5))};
      });
}

Result<std::vector<FileIdentity>> Reader::files_of(std::int64_t checkpoint_id,
                                                   std::string_view kind) const {
  EVALCAR_ASSIGN_OR_RETURN(
      const std::string files,
      text_or_empty(connection_->prepare(
          "SELECT files FROM checkpoint_kind WHERE checkpoint_id = ?1 AND kind = ?2", checkpoint_id,
          kind)));
  return decode_files(files);
}

Result<std::string> Reader::kept_path(std::int64_t checkpoint_id, std::string_view kind) const {
  return text_or_empty(connection_->prepare(
      "SELECT kept_path FROM checkpoint_kind WHERE checkpoint_id = ?1 AND kind = ?2", checkpoint_id,
      kind));
}

Result<std::vector<Evaluation>> Reader::evaluations(const EvaluationFilter& filter) const {
  std::vector<Evaluation> found;
  EVALCAR_RETURN_IF_ERROR(
      for_each_evaluation(filter, [&found](const Evaluation& row) { found.push_back(row); }));
  return found;
}

Status Reader::for_each_evaluation(const EvaluationFilter& filter,
                                   const std::function<void(const Evaluation& row)>& take) const {
  std::string states;
  for (const EvaluationState state : filter.states) {
    if (states.empty()) states = " ";
    states.append(state_name(state)).append(" ");
  }
  EVALCAR_ASSIGN_OR_RETURN(
      Statement rows,
      connection_->prepare(kEvaluations, std::optional<std::int64_t>{}, filter.run_id,
                           filter.checkpoint_id, filter.step, filter.kind, states,
                           filter.with_lease, filter.only_partial));
  while (true) {
    EVALCAR_ASSIGN_OR_RETURN(const bool more, rows.step());
    if (!more) return {};
    EVALCAR_ASSIGN_OR_RETURN(const Evaluation row, evaluation_of(rows));
    take(row);
  }
}

Result<std::optional<std::int64_t>> Reader::newest_step_there(std::int64_t run_id) const {
  EVALCAR_ASSIGN_OR_RETURN(
      Statement row,
      connection_->prepare("SELECT max(step) FROM checkpoint WHERE run_id = ?1 AND gone_at = ''",
                           run_id));
  EVALCAR_ASSIGN_OR_RETURN([[maybe_unused]] const bool found, row.step());
  return row.optional_integer(0);
}

Result<Evaluation> Reader::evaluation(std::int64_t evaluation_id) const {
  constexpr std::optional<std::int64_t> kAny;
  return only<Evaluation>(
      collect<Evaluation>(
          connection_->prepare(kEvaluations, evaluation_id, kAny, kAny, kAny, "", "", false, false),
          evaluation_of),
      "evaluation " + std::to_string(evaluation_id));
}

Result<std::vector<Attempt>> Reader::attempts(std::int64_t evaluation_id) const {
  return collect<Attempt>(
      connection_->prepare("SELECT attempt_id, evaluation_id, number, started_at, ended_at, "
                           "outcome, stage, error_kind, message, device FROM attempt WHERE "
                           "evaluation_id = ?1 ORDER BY number",
                           evaluation_id),
      [](const Statement& row) -> Result<Attempt> {
        Attempt attempt;
        Columns(row) >> attempt.id >> attempt.evaluation_id >> attempt.number >>
            attempt.started_at >> attempt.ended_at >> attempt.outcome >> attempt.stage >>
            attempt.error_kind >> attempt.message >> attempt.device;
        return attempt;
      });
}

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
              "r.fingerprint, r.n_effective "
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
          "missing, higher_is_better, n, weights_sha256, finished_at, evaluation_id FROM metrics "
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
        metric.weights_sha256 >> metric.finished_at >> metric.evaluation_id;
    take(metric);
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

Result<std::optional<Publication>> Reader::publication(std::int64_t evaluation_id) const {
  EVALCAR_ASSIGN_OR_RETURN(
      const auto found,
      collect<Publication>(
          connection_->prepare("SELECT seq, evaluation_id, line, supersedes, published_at, files "
                               "FROM publication WHERE evaluation_id = ?1",
                               evaluation_id),
          publication_of));
  if (found.empty()) return std::optional<Publication>{};
  return std::optional<Publication>{found.front()};
}

Result<std::vector<Publication>> Reader::publications(std::int64_t run_id) const {
  return collect<Publication>(
      connection_->prepare(
          "SELECT p.seq, p.evaluation_id, p.line, p.supersedes, p.published_at, p.files "
          "FROM publication p JOIN evaluation e USING (evaluation_id) WHERE e.run_id = ?1 ORDER BY "
          "p.seq",
          run_id),
      publication_of);
}

Result<std::vector<InterimLine>> Reader::interim_lines(std::int64_t run_id) const {
  return collect<InterimLine>(
      connection_->prepare(
          "SELECT seq, evaluation_id, key, line, supersedes FROM interim WHERE run_id = ?1 "
          "ORDER BY seq",
          run_id),
      [](const Statement& row) -> Result<InterimLine> {
        InterimLine line;
        Columns(row) >> line.seq >> line.evaluation_id >> line.key >> line.line >> line.supersedes;
        return line;
      });
}

Result<std::optional<double>> Reader::interim_fraction(std::int64_t evaluation_id) const {
  EVALCAR_ASSIGN_OR_RETURN(const auto tries, attempts(evaluation_id));
  std::string fault_at;
  for (const Attempt& attempt : tries) {
    if (protocol::is_device_fault(attempt.error_kind)) fault_at = attempt.ended_at;
  }
  EVALCAR_ASSIGN_OR_RETURN(
      Statement newest,
      connection_->prepare("SELECT fraction FROM interim WHERE evaluation_id = ?1 AND told_at > ?2 "
                           "ORDER BY seq DESC LIMIT 1",
                           evaluation_id, fault_at));
  EVALCAR_ASSIGN_OR_RETURN(const bool row, newest.step());
  return row ? std::optional(newest.real(0)) : std::nullopt;
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
