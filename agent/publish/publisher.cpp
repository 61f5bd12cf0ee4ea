#include "agent/publish/publisher.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "agent/publish/best.h"
#include "agent/publish/event_file.h"
#include "agent/publish/metrics_line.h"
#include "agent/publish/metrics_log.h"
#include "agent/publish/result_record.h"
#include "agent/publish/results_files.h"
#include "agent/publish/table.h"
#include "agent/publish/utc.h"
#include "store/base/stale_temporaries.h"

namespace evalcar::publish {
namespace {

using Json = nlohmann::ordered_json;
using state::Evaluation;

double seconds_since_epoch(WallTime time) {
  return static_cast<double>(time.time_since_epoch().count()) / 1e6;
}

/// Where the line says that the results file is, relative to its own folder.
std::string results_of(const std::string& line) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object() || !json.contains("results") || !json["results"].is_string()) return "";
  return json["results"].get<std::string>();
}

/// "evaluation" of a line that this program made.
std::string key_of(const std::string& line) {
  const Json json = Json::parse(line, nullptr, false);
  const bool has_key = json.is_object() && json.contains("evaluation");
  return has_key && json["evaluation"].is_string() ? json["evaluation"].get<std::string>() : "";
}

/// A line that tells the score of a part.
bool is_interim(const Json& line) {
  const auto final = line.is_object() ? line.find("final") : line.end();
  return line.is_object() && final != line.end() && *final == false;
}

}  // namespace

struct Publisher::State {
  State(FileSystem& the_files, const Clock& the_clock, state::Store& the_store,
        PublisherOptions the_options)
      : files(the_files),
        clock(the_clock),
        store(the_store),
        options(std::move(the_options)),
        log(files, join_path(options.dir, "metrics.jsonl"), options.fence) {}

  FileSystem& files;
  const Clock& clock;
  state::Store& store;
  PublisherOptions options;
  MetricsLog log;
  /// The run whose decided lines are all in the file, and at which look; absent: not known.
  std::optional<std::pair<std::int64_t, std::int64_t>> whole;
  /// A look at what was published that was cut; absent: the next one begins anew.
  struct Restoring {
    std::int64_t run_id = 0;
    std::int64_t through = 0;  ///< the last seq that was looked at
    bool events_gone = false;  ///< the event file lacks some
  };
  std::optional<Restoring> restoring;

  Status ask_fence() const { return options.fence ? options.fence() : Status(); }
  /// kCancelled where a turn has worked long enough.
  Status ask_enough() const {
    if (!options.enough || !options.enough()) return {};
    return make_error(ErrorCode::kCancelled, "the rest is handed out in the next turn");
  }
  const Aliases& published_aliases() const {
    static const Aliases kNone;
    return options.publish_aliases ? options.aliases : kNone;
  }

  Result<std::string> key_for(const Evaluation& evaluation,
                              const protocol::EvaluationResult& result) const {
    EVALCAR_ASSIGN_OR_RETURN(const bool is_return, store.read().is_return(evaluation.id));
    return evaluation_key(evaluation, result, is_return ? evaluation.generation : 1);
  }

  Result<RunFacts> run_facts(const Evaluation& evaluation,
                             const protocol::EvaluationResult& result) const {
    RunFacts facts;
    EVALCAR_ASSIGN_OR_RETURN(const auto attempts, store.read().attempts(evaluation.id));
    facts.device = attempts.empty() || attempts.back().device.empty() ? options.device
                                                                      : attempts.back().device;
    facts.checkpoint = evaluation.checkpoint_path;
    facts.weights = evaluation.kind;
    facts.dtype = evaluation.compute_dtype.empty() ? evaluation.dtype : evaluation.compute_dtype;
    facts.version = options.version;
    EVALCAR_ASSIGN_OR_RETURN(facts.evaluation_key, key_for(evaluation, result));
    EVALCAR_ASSIGN_OR_RETURN(facts.record, record_of(store.read(), evaluation, result));
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
    const std::string dir = results_dir(evaluation);
    EVALCAR_ASSIGN_OR_RETURN(RunFacts facts, run_facts(evaluation, result));
    return write_results_in(dir, std::move(facts), evaluation, result, options.log_samples);
  }
  std::string results_dir(const Evaluation& evaluation) const {
    return join_path(options.dir,
                     "results/" + std::to_string(evaluation.step) + "/" + evaluation.kind);
  }

  Result<ResultsFiles> write_results_in(const std::string& dir, RunFacts facts,
                                        const Evaluation& evaluation,
                                        const protocol::EvaluationResult& result,
                                        bool with_samples) {
    remove_stale_temporaries(files, join_path(dir, sanitized_model_name(facts.checkpoint)));
    EVALCAR_ASSIGN_OR_RETURN(const WallTime date, free_date(dir, facts));
    facts.started += date - facts.finished;
    facts.finished = date;
    SampleSource samples;
    if (with_samples) {
      samples = [&](const std::string& task, const std::function<Status(std::string_view)>& line) {
        return store.read().for_each_sample(evaluation.id, task, line);
      };
    }
    return write_results_files(files, dir, facts, result, samples);
  }

  /// Absent where it would hold no number.
  Result<std::optional<TimedEvent>> event_of(const Evaluation& evaluation,
                                             const protocol::EvaluationResult& result,
                                             const std::string& line = "") const {
    auto values = metric_values(evaluation.kind, result, published_aliases());
    EVALCAR_RETURN_IF_ERROR(drop_published(line, values));
    if (values.empty()) return std::optional<TimedEvent>();
    const double time = seconds_since_epoch(parse_utc(evaluation.finished_at));
    const std::string tag = std::string(key_prefix(evaluation.kind)) + "/results";
    return std::optional(TimedEvent{
        time, step_event(time, evaluation.step, values, {{tag, results_table(result)}})});
  }

  Status append_event_of(const Evaluation& evaluation, const protocol::EvaluationResult& result,
                         const std::string& line) {
    EVALCAR_ASSIGN_OR_RETURN(const auto event, event_of(evaluation, result, line));
    if (!event.has_value()) return {};
    return append_events(files, event_path(), {*event});
  }

  /// Where a line completes an earlier one of the same weights, the numbers of that have an event.
  Status drop_published(const std::string& line, std::map<std::string, double>& values) const {
    const Json json = Json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("supersedes")) return {};
    if (!json["supersedes"].is_number_integer()) return {};
    EVALCAR_ASSIGN_OR_RETURN(const auto earlier,
                             log.line_with_seq(json["supersedes"].get<std::int64_t>()));
    const Json before = Json::parse(earlier.value_or(""), nullptr, false);
    if (is_interim(before)) return {};  // interim scores have no event
    for (const char* key : {"run", "global_step", "checkpoint_type", "weights_sha256"}) {
      if (!before.is_object() || !before.contains(key) || before[key] != json[key]) return {};
    }
    if (!before.contains("metrics") || !before["metrics"].is_object()) return {};
    for (const auto& [key, value] : before["metrics"].items()) {
      const auto same = values.find(key);
      if (same != values.end() && value.is_number() && value == same->second) values.erase(same);
    }
    return {};
  }
  std::string event_path() const {
    return join_path(options.dir, "tensorboard/events.out.tfevents.1.evalcar");
  }

  /// How many evaluations the event file has, as far as it can be read.
  std::size_t known_events() const {
    const auto content = read_file(files, event_path(), std::uint64_t{1} << 30U);
    const std::size_t records = content.has_value() ? read_records(*content).data.size() : 0;
    return records == 0 ? 0 : records - 1;  // the first one tells the version
  }

  /// Brings the lines into the file that were decided and are not there: they could not be written,
  /// or somebody deleted the file. Who reads it from where he stopped must not miss one that comes
  /// after a larger seq.
  Status write_missing_lines(std::int64_t run_id) {
    if (whole == std::pair(run_id, log.looks())) return {};
    EVALCAR_ASSIGN_OR_RETURN(const auto publications, store.read().publications(run_id));
    EVALCAR_ASSIGN_OR_RETURN(const auto interims, store.read().interim_lines(run_id));
    std::vector<std::pair<std::int64_t, std::string>> missing;
    for (const state::Publication& publication : publications) {
      if (log.holds(key_of(publication.line))) continue;
      missing.emplace_back(publication.seq, publication.line);
    }
    for (const state::InterimLine& interim : interims) {
      if (log.holds(interim.key)) continue;
      missing.emplace_back(interim.seq, interim.line);
    }
    if (!missing.empty()) EVALCAR_RETURN_IF_ERROR(make_directories(files, options.dir));
    EVALCAR_RETURN_IF_ERROR(log.restore(std::move(missing)));
    whole = {run_id, log.looks()};
    return {};
  }

  /// What somebody deleted of the files of published evaluations is written again, as it was; a
  /// look at thousands of them goes on where it was cut.
  Status restore_files(std::int64_t run_id) {
    EVALCAR_ASSIGN_OR_RETURN(const auto publications, store.read().publications(run_id));
    if (!restoring.has_value() || restoring->run_id != run_id) {
      restoring = Restoring{run_id, 0, false};
      restoring->events_gone = options.tensorboard && known_events() < publications.size();
    }
    std::vector<TimedEvent> events;  // one write for all: each reads the whole file
    std::int64_t through = restoring->through;
    Status looked;
    for (const state::Publication& publication : publications) {
      if (publication.seq <= through || publication.published_at.empty()) continue;
      looked = restore_one(publication, restoring->events_gone, events);
      if (!looked.has_value()) break;
      through = publication.seq;
      if (&publication != &publications.back()) looked = ask_enough();
      if (!looked.has_value()) break;
    }
    EVALCAR_RETURN_IF_ERROR(append_events(files, event_path(), events));
    restoring->through = through;
    if (looked.has_value()) restoring.reset();
    return looked;
  }

  Status restore_one(const state::Publication& publication, bool events_gone,
                     std::vector<TimedEvent>& events) {
    const std::string results = results_of(publication.line);
    const bool results_gone = !results.empty() && !publication.pruned() &&
                              !files.info_followed(join_path(options.dir, results)).has_value();
    if (!results_gone && !events_gone) return {};
    EVALCAR_ASSIGN_OR_RETURN(const Evaluation evaluation,
                             store.read().evaluation(publication.evaluation_id));
    EVALCAR_ASSIGN_OR_RETURN(const protocol::EvaluationResult result,
                             store.read().result(evaluation.id));
    if (results_gone) {
      EVALCAR_ASSIGN_OR_RETURN([[maybe_unused]] const ResultsFiles again,
                               write_results(evaluation, result));
    }
    if (!events_gone) return {};
    EVALCAR_ASSIGN_OR_RETURN(auto event, event_of(evaluation, result));
    if (event.has_value()) events.push_back(std::move(*event));
    return {};
  }

  /// Decides the line (once) and brings it into the file (once). True if it was there already
  /// (then also its seq is the one in the file). `decided`: its seq and text.
  Result<bool> write_line(const Evaluation& evaluation, const protocol::EvaluationResult& result,
                          const std::string& results_file, std::optional<std::int64_t> lag_steps,
                          std::pair<std::int64_t, std::string>& decided) {
    EVALCAR_RETURN_IF_ERROR(log.refresh());
    EVALCAR_ASSIGN_OR_RETURN(const std::string key, key_for(evaluation, result));
    EVALCAR_RETURN_IF_ERROR(write_missing_lines(evaluation.run_id));
    EVALCAR_ASSIGN_OR_RETURN(const auto there, log.line_of(key));
    whole.reset();  // until the line that is decided now is there
    EVALCAR_ASSIGN_OR_RETURN(
        const state::Publication publication,
        store.begin_publication(
            evaluation.id, log.last_seq(),
            [&](std::int64_t next,
                const state::Store::Superseded& superseded) -> Result<std::string> {
              if (there.has_value()) return *there;  // the database is younger than the file
              LineFacts facts;
              facts.seq = next;
              facts.supersedes = superseded.line;
              facts.supersedes_interim = superseded.interim;
              facts.lag_steps = lag_steps;
              facts.results_file = results_file;
              facts.time = format_utc(clock.wall_now());
              facts.evaluation_key = key;
              return metrics_line(evaluation, result, facts, published_aliases());
            },
            there.has_value() ? seq_of(*there) : std::nullopt));
    decided = {publication.seq, there.value_or(publication.line)};
    if (there.has_value()) return true;
    EVALCAR_RETURN_IF_ERROR(log.append(publication.line));
    whole = {evaluation.run_id, log.looks()};
    return false;
  }
};

Publisher::Publisher(FileSystem& files, const Clock& clock, state::Store& store,
                     PublisherOptions options)
    : state_(std::make_unique<State>(files, clock, store, std::move(options))) {}
Publisher::~Publisher() = default;

/// What was scored before it of the same step goes first: the last line of a step is the one that
/// counts.
Result<Published> Publisher::publish(std::int64_t evaluation_id,
                                     std::optional<std::int64_t> lag_steps) {
  const state::Reader& rows = state_->store.read();
  EVALCAR_ASSIGN_OR_RETURN(const Evaluation evaluation, rows.evaluation(evaluation_id));
  EVALCAR_ASSIGN_OR_RETURN(const auto scored,
                           rows.evaluations({.run_id = evaluation.run_id,
                                             .step = evaluation.step,
                                             .kind = evaluation.kind,
                                             .states = {state::EvaluationState::kScored}}));
  for (const Evaluation& earlier : scored) {  // by generation
    if (earlier.id == evaluation_id) break;
    EVALCAR_ASSIGN_OR_RETURN([[maybe_unused]] const Published before, publish_one(earlier.id, {}));
  }
  return publish_one(evaluation_id, lag_steps);
}

Result<Published> Publisher::publish_one(std::int64_t evaluation_id,
                                         std::optional<std::int64_t> lag_steps) {
  State& s = *state_;
  EVALCAR_ASSIGN_OR_RETURN(const Evaluation evaluation, s.store.read().evaluation(evaluation_id));
  if (evaluation.state != state::EvaluationState::kScored) {
    return make_error(ErrorCode::kInvalidArgument,
                      "evaluation " + std::to_string(evaluation_id) + " is " +
                          std::string(state::state_name(evaluation.state)) +
                          ", only a scored one can be published");
  }
  Published published;
  if (evaluation.settings.requested != 0) {  // its files are written for whoever asked for it
    EVALCAR_RETURN_IF_ERROR(s.store.finish_unlisted(evaluation_id));
    return published;
  }
  EVALCAR_ASSIGN_OR_RETURN(const protocol::EvaluationResult result,
                           s.store.read().result(evaluation_id));
  EVALCAR_RETURN_IF_ERROR(s.ask_fence());
  EVALCAR_RETURN_IF_ERROR(make_directories(s.files, s.options.dir));

  EVALCAR_ASSIGN_OR_RETURN(const ResultsFiles results, s.write_results(evaluation, result));
  published.results_file = results.results;
  const std::string relative = results.results.substr(s.options.dir.size() + 1);
  std::pair<std::int64_t, std::string> line;
  EVALCAR_ASSIGN_OR_RETURN(published.line_was_there,
                           s.write_line(evaluation, result, relative, lag_steps, line));
  published.seq = line.first;
  std::vector<std::string> written = results.samples;
  written.push_back(results.table);
  written.push_back(results.results);
  if (s.options.tensorboard) {
    EVALCAR_RETURN_IF_ERROR(s.ask_fence());
    EVALCAR_RETURN_IF_ERROR(s.append_event_of(evaluation, result, line.second));
    written.push_back(s.event_path());
  }
  EVALCAR_RETURN_IF_ERROR(s.ask_fence());
  EVALCAR_RETURN_IF_ERROR(s.store.finish_publication(evaluation_id, written));
  // From here on the evaluation is published; best.json follows from the database at any time.
  EVALCAR_RETURN_IF_ERROR(write_best(evaluation.run_id));
  EVALCAR_ASSIGN_OR_RETURN(const auto best, best_evaluation(evaluation.run_id, evaluation.kind));
  published.is_best = best == evaluation_id;
  return published;
}

std::string Publisher::results_dir(const Evaluation& evaluation) const {
  return state_->results_dir(evaluation);
}

Result<ResultsFiles> Publisher::write_files_for(std::int64_t evaluation_id,
                                                const protocol::EvaluationResult& part,
                                                const std::string& dir, bool with_samples) {
  State& s = *state_;
  EVALCAR_RETURN_IF_ERROR(s.ask_fence());
  EVALCAR_ASSIGN_OR_RETURN(const Evaluation evaluation, s.store.read().evaluation(evaluation_id));
  EVALCAR_ASSIGN_OR_RETURN(RunFacts facts, s.run_facts(evaluation, part));
  facts.record.clear();  // no rows are ever made of it
  return s.write_results_in(dir, std::move(facts), evaluation, part, with_samples);
}

namespace {

/// Of a step that has a number of a task, no part of it is told.
Status drop_whole_tasks(const state::Reader& rows, std::int64_t evaluation_id,
                        protocol::Interim& interim) {
  EVALCAR_ASSIGN_OR_RETURN(const auto numbers, rows.tasks_with_numbers(evaluation_id));
  std::erase_if(interim.tasks, [&numbers](const protocol::InterimScore& score) {
    return std::find(numbers.begin(), numbers.end(), score.task) != numbers.end();
  });
  return {};
}

}  // namespace

Result<bool> Publisher::knows_interim(std::int64_t evaluation_id, protocol::Interim interim) const {
  const state::Reader& rows = state_->store.read();
  EVALCAR_ASSIGN_OR_RETURN(const Evaluation evaluation, rows.evaluation(evaluation_id));
  EVALCAR_RETURN_IF_ERROR(drop_whole_tasks(rows, evaluation_id, interim));
  EVALCAR_ASSIGN_OR_RETURN(const auto lines, rows.interim_lines(evaluation.run_id));
  const std::string key = interim_key(evaluation, interim);
  return std::any_of(lines.begin(), lines.end(), [&](const state::InterimLine& line) {
    return line.evaluation_id == evaluation_id && line.key == key;
  });
}

Result<std::optional<std::int64_t>> Publisher::publish_interim(
    std::int64_t evaluation_id, protocol::Interim interim, std::optional<std::int64_t> lag_steps) {
  State& s = *state_;
  EVALCAR_ASSIGN_OR_RETURN(const Evaluation evaluation, s.store.read().evaluation(evaluation_id));
  EVALCAR_RETURN_IF_ERROR(drop_whole_tasks(s.store.read(), evaluation_id, interim));
  if (interim.tasks.empty()) return std::optional<std::int64_t>();
  EVALCAR_RETURN_IF_ERROR(s.ask_fence());
  EVALCAR_RETURN_IF_ERROR(make_directories(s.files, s.options.dir));
  EVALCAR_RETURN_IF_ERROR(s.log.refresh());
  EVALCAR_RETURN_IF_ERROR(s.write_missing_lines(evaluation.run_id));
  const std::string key = interim_key(evaluation, interim);
  EVALCAR_ASSIGN_OR_RETURN(const auto there, s.log.line_of(key));
  s.whole.reset();  // until the line that is decided now is there
  EVALCAR_ASSIGN_OR_RETURN(
      const state::InterimLine line,
      s.store.record_interim(
          evaluation_id, interim, key, s.log.last_seq(),
          [&](std::int64_t seq, std::optional<std::int64_t> supersedes) -> Result<std::string> {
            if (there.has_value()) return *there;  // the database is younger than the file
            LineFacts facts;
            facts.seq = seq;
            facts.supersedes = supersedes;
            facts.lag_steps = lag_steps;
            facts.time = format_utc(s.clock.wall_now());
            return interim_line(evaluation, interim, facts, s.published_aliases());
          },
          there.has_value() ? seq_of(*there) : std::nullopt));
  if (!there.has_value()) {
    EVALCAR_RETURN_IF_ERROR(s.log.append(line.line));
    s.whole = {evaluation.run_id, s.log.looks()};
  }
  return std::optional(line.seq);
}

Result<std::int64_t> Publisher::publish_pending(std::int64_t run_id,
                                                std::optional<std::int64_t> lag_steps) {
  state::EvaluationFilter scored;
  scored.run_id = run_id;
  scored.states = {state::EvaluationState::kScored};
  EVALCAR_RETURN_IF_ERROR(state_->ask_fence());
  EVALCAR_RETURN_IF_ERROR(state_->log.refresh());
  EVALCAR_RETURN_IF_ERROR(state_->write_missing_lines(run_id));
  EVALCAR_RETURN_IF_ERROR(state_->restore_files(run_id));
  EVALCAR_ASSIGN_OR_RETURN(const auto pending, state_->store.read().evaluations(scored));
  std::int64_t done = 0;
  for (const Evaluation& evaluation : pending) {
    EVALCAR_ASSIGN_OR_RETURN([[maybe_unused]] const Published published,
                             publish(evaluation.id, lag_steps));
    ++done;
    if (&evaluation != &pending.back()) EVALCAR_RETURN_IF_ERROR(state_->ask_enough());
  }
  EVALCAR_RETURN_IF_ERROR(write_best(run_id));
  return done;
}

Result<std::optional<std::int64_t>> Publisher::best_evaluation(std::int64_t run_id,
                                                               const std::string& kind) const {
  return publish::best_evaluation(state_->store.read(), state_->options, run_id, kind);
}

Status Publisher::replace_log() { return state_->log.replace(); }

Status Publisher::write_best(std::int64_t run_id) {
  EVALCAR_RETURN_IF_ERROR(state_->ask_fence());
  return publish::write_best(state_->files, state_->store.read(), state_->options, run_id);
}

}  // namespace evalcar::publish
