#include "store/state/reader.h"

#include "store/state/row_columns.h"
#include "store/state/schema.h"
#include "store/state/sqlite.h"

namespace evalcar::state {
namespace {

constexpr std::string_view kRuns =
    "SELECT run_id, name, output_dir, generation, created_at, mark FROM run ORDER BY run_id";

constexpr std::string_view kStandings =
    "SELECT e.evaluation_id, e.step, e.kind, e.settings, e.settings_sha256, e.state, e.lease_path, "
    "e.attempts, e.failures, e.next_try_at, e.created_at, e.asked FROM evaluation e";

constexpr std::string_view kEvaluations =
    "SELECT e.evaluation_id, e.run_id, run.name, e.checkpoint_id, c.name, c.path, c.layout, "
    "e.step, c.generation, e.kind, e.dtype, e.settings, e.settings_sha256, e.state, e.reason, "
    "e.lease_path, e.weights_sha256, e.stage, e.progress_done, e.progress_total, e.attempts, "
    "e.failures, e.next_try_at, e.created_at, e.updated_at, e.finished_at, e.seconds, "
    "e.compute_dtype, e.asked "
    "FROM evaluation e CROSS JOIN run USING (run_id) CROSS JOIN checkpoint c USING (checkpoint_id)";

/// Only what restricts is in the text, so that an index finds the rows: of one that is asked for,
/// no others are looked at. `+`: by the number or the state rather than by the run, which most rows
/// are of, and by the step rather than by the state. A step of all runs is asked of each run: the
/// index begins with that.
std::string evaluations_where(const EvaluationFilter& filter) {
  std::string states;
  for (const EvaluationState state : filter.states) {
    states.append(states.empty() ? "'" : ", '").append(state_name(state)).append("'");
  }
  const bool by_id = filter.ids.has_value();
  const bool by_state = by_id || (!states.empty() && !filter.step.has_value());
  Conditions where;
  where.add_if(filter.run_id.has_value(), by_state ? "+e.run_id = ?1" : "e.run_id = ?1");
  where.add_if(!filter.run_id.has_value() && filter.step.has_value(),
               "e.run_id IN (SELECT run_id FROM run)");
  where.add_if(filter.checkpoint_id.has_value(), "e.checkpoint_id = ?2");
  where.add_if(filter.step.has_value(), "e.step = ?3");
  where.add_if(!filter.kind.empty(), "e.kind = ?4");
  where.add_if(!states.empty(),
               (filter.step.has_value() ? "+e.state IN (" : "e.state IN (") + states + ")");
  where.add_if(by_id, "e.evaluation_id IN (SELECT value FROM json_each(?5))");
  where.add_if(filter.with_lease, "e.lease_path <> ''");
  where.add_if(filter.only_partial, "e.state = 'published' AND e.reason <> ''");
  return where.text();
}

/// Most rows of a run have the same settings: to parse these anew for each would be most of the
/// work of reading them.
class SettingsOfRows {
 public:
  Result<protocol::EvaluationSettings> read(const std::string& text) {
    if (!known_.has_value() || text != text_) {
      known_.reset();
      EVALCAR_ASSIGN_OR_RETURN(known_, protocol::decode_settings(text));
      text_ = text;
    }
    return *known_;
  }

 private:
  std::string text_;
  std::optional<protocol::EvaluationSettings> known_;  ///< what `text_` says
};

/// A JSON list, as evaluations_where() asks for it.
std::string ids_of(const EvaluationFilter& filter) {
  std::string list;
  for (const std::int64_t id : filter.ids.value_or(std::vector<std::int64_t>())) {
    list += (list.empty() ? "" : ",") + std::to_string(id);
  }
  return "[" + list + "]";
}

Result<EvaluationState> state_of(std::int64_t id, const std::string& name) {
  const auto known = state_from_name(name);
  if (known.has_value()) return *known;
  return make_error(ErrorCode::kCorruption,
                    "evaluation " + std::to_string(id) + " has the unknown state '" + name + "'");
}

Result<Evaluation> evaluation_of(const Statement& row, SettingsOfRows& known_settings) {
  Evaluation e;
  std::string settings;
  std::string state;
  Columns(row) >> e.id >> e.run_id >> e.run >> e.checkpoint_id >> e.checkpoint >>
      e.checkpoint_path >> e.layout >> e.step >> e.generation >> e.kind >> e.dtype >> settings >>
      e.settings_sha256 >> state >> e.reason >> e.lease_path >> e.weights_sha256 >> e.stage >>
      e.progress_done >> e.progress_total >> e.attempts >> e.failures >> e.next_try_at >>
      e.created_at >> e.updated_at >> e.finished_at >> e.seconds >> e.compute_dtype >> e.asked;
  EVALCAR_ASSIGN_OR_RETURN(e.settings, known_settings.read(settings));
  EVALCAR_ASSIGN_OR_RETURN(e.state, state_of(e.id, state));
  return e;
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

Result<std::int64_t> Reader::data_version() const { return connection_->data_version(); }

Result<std::optional<std::set<std::int64_t>>> Reader::changed_evaluations() const {
  return connection_->take_touched("evaluation");
}

Result<std::vector<Run>> Reader::runs() const {
  return collect<Run>(connection_->prepare(kRuns), [](const Statement& row) -> Result<Run> {
    Run run;
    Columns(row) >> run.id >> run.name >> run.output_dir >> run.generation >> run.created_at >>
        run.mark;
    return run;
  });
}

Result<std::vector<Evaluation>> Reader::evaluations(const EvaluationFilter& filter) const {
  std::vector<Evaluation> found;
  EVALCAR_RETURN_IF_ERROR(
      for_each_evaluation(filter, [&found](const Evaluation& row) { found.push_back(row); }));
  return found;
}

Status Reader::for_each_evaluation(const EvaluationFilter& filter,
                                   const std::function<void(const Evaluation& row)>& take) const {
  EVALCAR_ASSIGN_OR_RETURN(
      Statement rows,
      connection_->prepare(
          std::string(kEvaluations) + evaluations_where(filter) +
              " ORDER BY e.step, c.generation, e.kind DESC, e.evaluation_id LIMIT ?6",
          filter.run_id, filter.checkpoint_id, filter.step, filter.kind, ids_of(filter), kAllRows));
  SettingsOfRows known_settings;
  while (true) {
    EVALCAR_ASSIGN_OR_RETURN(const bool more, rows.step());
    if (!more) return {};
    EVALCAR_ASSIGN_OR_RETURN(const Evaluation row, evaluation_of(rows, known_settings));
    take(row);
  }
}

Status Reader::for_each_standing(const EvaluationFilter& filter,
                                 const std::function<void(const Standing& row)>& take) const {
  EVALCAR_ASSIGN_OR_RETURN(
      Statement rows,
      connection_->prepare(std::string(kStandings) + evaluations_where(filter) + " LIMIT ?6",
                           filter.run_id, filter.checkpoint_id, filter.step, filter.kind,
                           ids_of(filter), kAllRows));
  SettingsOfRows known_settings;
  Standing at;
  std::string settings;
  std::string state;
  while (true) {
    EVALCAR_ASSIGN_OR_RETURN(const bool more, rows.step());
    if (!more) return {};
    Columns(rows) >> at.id >> at.step >> at.kind >> settings >> at.settings_sha256 >> state >>
        at.lease_path >> at.attempts >> at.failures >> at.next_try_at >> at.created_at >> at.asked;
    EVALCAR_ASSIGN_OR_RETURN(at.settings, known_settings.read(settings));
    EVALCAR_ASSIGN_OR_RETURN(at.state, state_of(at.id, state));
    take(at);
  }
}

Result<std::vector<std::string>> Reader::lease_paths(const EvaluationFilter& filter) const {
  return collect<std::string>(
      connection_->prepare(
          "SELECT e.lease_path FROM evaluation e" + evaluations_where(filter) + " LIMIT ?6",
          filter.run_id, filter.checkpoint_id, filter.step, filter.kind, ids_of(filter), kAllRows),
      [](const Statement& row) -> Result<std::string> { return row.text(0); });
}

Result<std::map<std::int64_t, std::int64_t>> Reader::written_at(
    const EvaluationFilter& filter) const {
  using Written = std::pair<std::int64_t, std::int64_t>;
  EVALCAR_ASSIGN_OR_RETURN(
      const auto found,
      collect<Written>(
          connection_->prepare(
              "SELECT e.evaluation_id, k.mtime_ns FROM evaluation e JOIN checkpoint_kind k ON "
              "k.checkpoint_id = e.checkpoint_id AND "
              "k.kind = iif(e.kind = 'average', 'regular', e.kind)" +
                  evaluations_where(filter) + " LIMIT ?6",
              filter.run_id, filter.checkpoint_id, filter.step, filter.kind, ids_of(filter),
              kAllRows),
          [](const Statement& row) -> Result<Written> {
            return Written{row.integer(0), row.integer(1)};
          }));
  return std::map<std::int64_t, std::int64_t>(found.begin(), found.end());
}

Result<std::int64_t> Reader::written_at(std::int64_t evaluation_id) const {
  EVALCAR_ASSIGN_OR_RETURN(const auto found,
                           written_at(EvaluationFilter{.ids = std::vector{evaluation_id}}));
  return found.empty() ? 0 : found.begin()->second;
}

Result<Evaluation> Reader::evaluation(std::int64_t evaluation_id) const {
  return only<Evaluation>(
      collect<Evaluation>(
          connection_->prepare(std::string(kEvaluations) + " WHERE e.evaluation_id = ?1",
                               evaluation_id),
          [](const Statement& row) {
            SettingsOfRows known_settings;
            return evaluation_of(row, known_settings);
          }),
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

}  // namespace evalcar::state
