#include "agent/publish/publisher.h"

#include <nlohmann/json.hpp>

#include "agent/publish/event_file.h"
#include "agent/publish/metrics_line.h"
#include "agent/publish/metrics_log.h"
#include "agent/publish/results_files.h"

namespace evalcar::publish {
namespace {

using Json = nlohmann::ordered_json;
using state::Evaluation;

/// The time of a text that format_utc() made.
WallTime parse_utc(const std::string& text) {
  std::tm parts{};
  int micros = 0;
  if (std::sscanf(text.c_str(), "%d-%d-%dT%d:%d:%d.%6dZ", &parts.tm_year, &parts.tm_mon,
                  &parts.tm_mday, &parts.tm_hour, &parts.tm_min, &parts.tm_sec, &micros) != 7) {
    return WallTime{};
  }
  parts.tm_year -= 1900;
  parts.tm_mon -= 1;
  return WallTime{std::chrono::seconds{timegm(&parts)} + std::chrono::microseconds{micros}};
}

double seconds_since_epoch(WallTime time) {
  return static_cast<double>(time.time_since_epoch().count()) / 1e6;
}

/// Whether a metric's row is meant by "eval/<task>/<metric>", under its own name or an alias.
bool is_named(const std::string& wanted, const state::MetricRow& row, const Aliases& aliases) {
  protocol::Metric metric;
  metric.name = row.metric;
  metric.filter = row.filter;
  if (metric_key("regular", row.task, metric) == wanted) return true;
  if (!aliases) return false;
  for (const std::string& name : aliases(row.task, row.metric)) {
    metric.name = name;
    if (metric_key("regular", row.task, metric) == wanted) return true;
  }
  return false;
}

/// "seq" of a line that this program wrote.
std::optional<std::int64_t> seq_of(const std::optional<std::string>& line) {
  if (!line.has_value()) return std::nullopt;
  const Json json = Json::parse(*line, nullptr, false);
  if (!json.is_object() || !json.contains("seq") || !json["seq"].is_number_integer()) {
    return std::nullopt;
  }
  return json["seq"].get<std::int64_t>();
}

}  // namespace

struct Publisher::State {
  State(FileSystem& the_files, const Clock& the_clock, state::Store& the_store,
        PublisherOptions the_options)
      : files(the_files),
        clock(the_clock),
        store(the_store),
        options(std::move(the_options)),
        log(files, join_path(options.dir, "metrics.jsonl")) {}

  FileSystem& files;
  const Clock& clock;
  state::Store& store;
  PublisherOptions options;
  MetricsLog log;

  const Aliases& published_aliases() const {
    static const Aliases kNone;
    return options.publish_aliases ? options.aliases : kNone;
  }

  Result<RunFacts> run_facts(const Evaluation& evaluation) const {
    RunFacts facts;
    EVALCAR_ASSIGN_OR_RETURN(const auto attempts, store.read().attempts(evaluation.id));
    facts.device = attempts.empty() || attempts.back().device.empty() ? options.device
                                                                      : attempts.back().device;
    facts.checkpoint = evaluation.checkpoint_path;
    facts.weights = evaluation.kind;
    facts.dtype = evaluation.compute_dtype.empty() ? evaluation.dtype : evaluation.compute_dtype;
    facts.version = options.version;
    facts.evaluation_key = evaluation_key(evaluation);
    facts.settings = evaluation.settings;
    facts.finished = parse_utc(evaluation.finished_at);
    facts.started = facts.finished - std::chrono::duration_cast<std::chrono::microseconds>(
                                         std::chrono::duration<double>(evaluation.seconds));
    return facts;
  }

  /// The first second from `finished` on whose file name is free, or is this evaluation's already:
  /// lmms-eval's names have whole seconds, and two short evaluations may share one.
  Result<WallTime> free_date(const std::string& dir, const RunFacts& facts) const {
    WallTime date = facts.finished;
    for (int tries = 0; tries < 1000; ++tries, date += std::chrono::seconds{1}) {
      const std::string path = join_path(join_path(dir, sanitized_model_name(facts.checkpoint)),
                                         date_name(date) + "_results.json");
      const auto text = read_file(files, path, std::uint64_t{64} << 20U);
      if (!text.has_value()) {
        if (text.error().code == ErrorCode::kNotFound) return date;
        return text.error();
      }
      const Json json = Json::parse(*text, nullptr, false);
      const Json::json_pointer place("/evalcar/evaluation");
      if (json.is_object() && json.contains(place) && json[place] == facts.evaluation_key) {
        return date;
      }
    }
    return make_error(ErrorCode::kUnavailable,
                      dir + ": no free file name near " + date_name(facts.finished));
  }

  Result<ResultsFiles> write_results(const Evaluation& evaluation,
                                     const protocol::EvaluationResult& result) {
    const std::string dir = join_path(
        options.dir, "results/" + std::to_string(evaluation.step) + "/" + evaluation.kind);
    EVALCAR_ASSIGN_OR_RETURN(RunFacts facts, run_facts(evaluation));
    EVALCAR_ASSIGN_OR_RETURN(const WallTime date, free_date(dir, facts));
    facts.started += date - facts.finished;
    facts.finished = date;
    SampleSource samples;
    if (options.log_samples) {
      samples = [&](const std::string& task, const std::function<Status(std::string_view)>& line) {
        return store.read().for_each_sample(evaluation.id, task, line);
      };
    }
    return write_results_files(files, dir, facts, result, samples);
  }

  /// Appends the lines that were decided and could not be written, in the order of their seq: who
  /// reads the file from where he stopped must not miss one that comes after a larger seq.
  Status write_left_over_lines(std::int64_t run_id) {
    EVALCAR_ASSIGN_OR_RETURN(const auto publications, store.read().publications(run_id));
    for (const state::Publication& publication : publications) {  // by seq
      if (!publication.published_at.empty()) continue;
      EVALCAR_ASSIGN_OR_RETURN(const Evaluation evaluation,
                               store.read().evaluation(publication.evaluation_id));
      if (log.line_of(evaluation_key(evaluation)).has_value()) continue;
      EVALCAR_RETURN_IF_ERROR(log.append(publication.line));
      EVALCAR_RETURN_IF_ERROR(log.refresh());
    }
    return {};
  }

  /// Decides the line (once) and brings it into the file (once). True if it was there already
  /// (then also its seq is the one in the file).
  Result<bool> write_line(const Evaluation& evaluation, const protocol::EvaluationResult& result,
                          const std::string& results_file, std::optional<std::int64_t> lag_steps,
                          std::int64_t& seq) {
    EVALCAR_RETURN_IF_ERROR(log.refresh());
    const std::string key = evaluation_key(evaluation);
    EVALCAR_RETURN_IF_ERROR(write_left_over_lines(evaluation.run_id));
    const auto there = log.line_of(key);
    EVALCAR_ASSIGN_OR_RETURN(
        const state::Publication publication,
        store.begin_publication(
            evaluation.id, log.last_seq(),
            [&](std::int64_t next, std::optional<std::int64_t> supersedes) -> Result<std::string> {
              if (there.has_value()) return *there;  // the database is younger than the file
              LineFacts facts;
              facts.seq = next;
              facts.supersedes = supersedes;
              facts.lag_steps = lag_steps;
              facts.results_file = results_file;
              facts.time = format_utc(clock.wall_now());
              return metrics_line(evaluation, result, facts, published_aliases());
            },
            seq_of(there)));
    seq = publication.seq;
    if (there.has_value()) return true;
    EVALCAR_RETURN_IF_ERROR(log.append(publication.line));
    return false;
  }
};

Publisher::Publisher(FileSystem& files, const Clock& clock, state::Store& store,
                     PublisherOptions options)
    : state_(std::make_unique<State>(files, clock, store, std::move(options))) {}
Publisher::~Publisher() = default;

Result<Published> Publisher::publish(std::int64_t evaluation_id,
                                     std::optional<std::int64_t> lag_steps) {
  State& s = *state_;
  EVALCAR_ASSIGN_OR_RETURN(const Evaluation evaluation, s.store.read().evaluation(evaluation_id));
  if (evaluation.state != state::EvaluationState::kScored) {
    return make_error(ErrorCode::kInvalidArgument,
                      "evaluation " + std::to_string(evaluation_id) + " is " +
                          std::string(state::state_name(evaluation.state)) +
                          ", only a scored one can be published");
  }
  EVALCAR_ASSIGN_OR_RETURN(const protocol::EvaluationResult result,
                           s.store.read().result(evaluation_id));
  EVALCAR_RETURN_IF_ERROR(make_directories(s.files, s.options.dir));

  Published published;
  EVALCAR_ASSIGN_OR_RETURN(const ResultsFiles results, s.write_results(evaluation, result));
  published.results_file = results.results;
  const std::string relative = results.results.substr(s.options.dir.size() + 1);
  EVALCAR_ASSIGN_OR_RETURN(published.line_was_there,
                           s.write_line(evaluation, result, relative, lag_steps, published.seq));
  std::vector<std::string> written = results.samples;
  written.push_back(results.table);
  written.push_back(results.results);
  if (s.options.tensorboard) {
    const std::string path = join_path(s.options.dir, "tensorboard/events.out.tfevents.1.evalcar");
    const double time = seconds_since_epoch(parse_utc(evaluation.finished_at));
    EVALCAR_RETURN_IF_ERROR(
        append_event(s.files, path, time,
                     scalar_event(time, evaluation.step,
                                  metric_values(evaluation.kind, result, s.published_aliases()))));
    written.push_back(path);
  }
  EVALCAR_RETURN_IF_ERROR(s.store.finish_publication(evaluation_id, written));
  // From here on the evaluation is published; best.json follows from the database at any time.
  EVALCAR_RETURN_IF_ERROR(write_best(evaluation.run_id));
  EVALCAR_ASSIGN_OR_RETURN(const auto best, best_evaluation(evaluation.run_id, evaluation.kind));
  published.is_best = best == evaluation_id;
  return published;
}

Result<std::int64_t> Publisher::publish_pending(std::int64_t run_id,
                                                std::optional<std::int64_t> lag_steps) {
  state::EvaluationFilter scored;
  scored.run_id = run_id;
  scored.states = {state::EvaluationState::kScored};
  EVALCAR_RETURN_IF_ERROR(state_->log.refresh());
  EVALCAR_ASSIGN_OR_RETURN(const auto pending, state_->store.read().evaluations(scored));
  std::int64_t done = 0;
  for (const Evaluation& evaluation : pending) {
    EVALCAR_ASSIGN_OR_RETURN([[maybe_unused]] const Published published,
                             publish(evaluation.id, lag_steps));
    ++done;
  }
  EVALCAR_RETURN_IF_ERROR(write_best(run_id));
  return done;
}

namespace {

/// The best row of each kind: the first to reach the best value.
std::map<std::string, state::MetricRow> best_rows(const std::vector<state::MetricRow>& rows,
                                                  const PublisherOptions& options,
                                                  bool& greater_is_better) {
  std::map<std::string, state::MetricRow> best;
  for (const state::MetricRow& row : rows) {  // by step
    if (!row.value.has_value() || !is_named(options.metric_for_best_model, row, options.aliases)) {
      continue;
    }
    greater_is_better = options.greater_is_better.value_or(row.higher_is_better);
    const auto known = best.find(row.checkpoint_type);
    const bool better =
        known == best.end() ||
        (greater_is_better ? *row.value > *known->second.value : *row.value < *known->second.value);
    if (better) best[row.checkpoint_type] = row;
  }
  return best;
}

Result<std::vector<state::MetricRow>> rows_of_run(const state::Reader& reader,
                                                  std::int64_t run_id) {
  EVALCAR_ASSIGN_OR_RETURN(const auto runs, reader.runs());
  for (const state::Run& run : runs) {
    if (run.id != run_id) continue;
    state::MetricFilter filter;
    filter.run = run.name;
    return reader.metrics(filter);
  }
  return make_error(ErrorCode::kNotFound, "no run " + std::to_string(run_id));
}

}  // namespace

Result<std::optional<std::int64_t>> Publisher::best_evaluation(std::int64_t run_id,
                                                               const std::string& kind) const {
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, rows_of_run(state_->store.read(), run_id));
  bool greater = true;
  const auto best = best_rows(rows, state_->options, greater);
  const auto found = best.find(kind);
  if (found == best.end()) return std::optional<std::int64_t>{};
  return std::optional<std::int64_t>{found->second.evaluation_id};
}

Status Publisher::write_best(std::int64_t run_id) {
  State& s = *state_;
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, rows_of_run(s.store.read(), run_id));
  bool greater = true;
  const auto best = best_rows(rows, s.options, greater);
  if (best.empty()) return {};
  Json root = Json::object();
  root["metric"] = s.options.metric_for_best_model;
  root["greater_is_better"] = greater;
  root["best"] = Json::object();
  for (const char* const kind : {"regular", "ema", "average"}) {
    const auto found = best.find(kind);
    if (found == best.end()) continue;
    EVALCAR_ASSIGN_OR_RETURN(const Evaluation evaluation,
                             s.store.read().evaluation(found->second.evaluation_id));
    EVALCAR_ASSIGN_OR_RETURN(const std::string kept,
                             s.store.read().kept_path(evaluation.checkpoint_id, kind));
    Json entry = Json::object();
    entry["step"] = evaluation.step;
    entry["value"] = *found->second.value;
    entry["checkpoint"] = evaluation.checkpoint;
    entry["kept_path"] = kept.empty() ? Json(nullptr) : Json(kept);
    entry["weights_sha256"] = found->second.weights_sha256;
    root["best"][kind] = std::move(entry);
  }
  const std::string text = root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  const std::string path = join_path(s.options.dir, "best.json");
  if (read_file(s.files, path, std::uint64_t{1} << 20U).value_or("") == text) return {};
  EVALCAR_RETURN_IF_ERROR(make_directories(s.files, s.options.dir));
  return write_file_atomically(s.files, path, text);
}

}  // namespace evalcar::publish
