#include "agent/publish/publisher.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "agent/publish/best.h"
#include "agent/publish/evaluation_events.h"
#include "agent/publish/evaluation_files.h"
#include "agent/publish/event_log.h"
#include "agent/publish/metrics_line.h"
#include "agent/publish/metrics_log.h"
#include "agent/publish/restoration.h"
#include "agent/publish/utc.h"

namespace evalcar::publish {

using state::Evaluation;

struct Publisher::State {
  State(FileSystem& the_files, const Clock& the_clock, state::Store& the_store,
        PublisherOptions the_options)
      : files(the_files),
        clock(the_clock),
        store(the_store),
        options(std::move(the_options)),
        log(files, join_path(options.dir, "metrics.jsonl"), options.fence, options.enough),
        events(files, join_path(options.dir, "tensorboard/events.out.tfevents.1.evalcar"),
               options.enough),
        results(files, store, options),
        restoration(files, store, options, log, events, results) {}

  FileSystem& files;
  const Clock& clock;
  state::Store& store;
  PublisherOptions options;
  MetricsLog log;
  EventLog events;
  EvaluationFiles results;
  Restoration restoration;

  Status ask_fence() const { return options.fence ? options.fence() : Status(); }

  /// Whatever the files have is known, and the lines that lack are back: the next one may come. Of
  /// long files that somebody changed this may take some turns (kCancelled).
  Status look_at_files(std::int64_t run_id) {
    EVALCAR_RETURN_IF_ERROR(log.refresh());
    EVALCAR_RETURN_IF_ERROR(restoration.write_missing_lines(run_id));
    return options.tensorboard ? events.refresh() : Status();
  }

  /// Decides the line (once) and brings it into the file (once). True if it was there already
  /// (then also its seq is the one in the file). `decided`: its seq and text.
  Result<bool> write_line(const Evaluation& evaluation, const protocol::EvaluationResult& result,
                          const std::string& results_file, std::optional<std::int64_t> lag_steps,
                          std::pair<std::int64_t, std::string>& decided) {
    EVALCAR_RETURN_IF_ERROR(log.refresh());
    EVALCAR_ASSIGN_OR_RETURN(const std::string key, results.key_of(evaluation, result));
    EVALCAR_RETURN_IF_ERROR(restoration.write_missing_lines(evaluation.run_id));
    EVALCAR_ASSIGN_OR_RETURN(const auto there, log.line_of(key));
    restoration.line_begins();
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
              return metrics_line(evaluation, result, facts, published_aliases(options));
            },
            there.has_value() ? seq_of(*there) : std::nullopt));
    decided = {publication.seq, there.value_or(publication.line)};
    if (there.has_value()) return true;
    EVALCAR_RETURN_IF_ERROR(log.append(publication.line));
    restoration.line_is_there(evaluation.run_id);
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
  EVALCAR_RETURN_IF_ERROR(s.look_at_files(evaluation.run_id));

  EVALCAR_ASSIGN_OR_RETURN(const ResultsFiles results, s.results.write(evaluation, result));
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
    EVALCAR_ASSIGN_OR_RETURN(const auto event,
                             event_of(s.options, s.log, evaluation, result, line.second));
    if (event.has_value()) EVALCAR_RETURN_IF_ERROR(s.events.append({*event}));
    written.push_back(s.events.path());
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
  return state_->results.results_dir(evaluation);
}

Result<ResultsFiles> Publisher::write_files_for(std::int64_t evaluation_id,
                                                const protocol::EvaluationResult& part,
                                                const std::string& dir, bool with_samples) {
  State& s = *state_;
  EVALCAR_RETURN_IF_ERROR(s.ask_fence());
  EVALCAR_ASSIGN_OR_RETURN(const Evaluation evaluation, s.store.read().evaluation(evaluation_id));
  return s.results.write_part(dir, evaluation, part, with_samples);
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
  return rows.has_interim(evaluation_id, interim_key(evaluation, interim));
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
  EVALCAR_RETURN_IF_ERROR(s.restoration.write_missing_lines(evaluation.run_id));
  const std::string key = interim_key(evaluation, interim);
  EVALCAR_ASSIGN_OR_RETURN(const auto there, s.log.line_of(key));
  s.restoration.line_begins();
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
            return interim_line(evaluation, interim, facts, published_aliases(s.options));
          },
          there.has_value() ? seq_of(*there) : std::nullopt));
  if (!there.has_value()) {
    EVALCAR_RETURN_IF_ERROR(s.log.append(line.line));
    s.restoration.line_is_there(evaluation.run_id);
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
  EVALCAR_RETURN_IF_ERROR(state_->restoration.write_missing_lines(run_id));
  EVALCAR_RETURN_IF_ERROR(state_->restoration.restore_files(run_id));
  EVALCAR_ASSIGN_OR_RETURN(const auto pending, state_->store.read().evaluations(scored));
  std::int64_t done = 0;
  for (const Evaluation& evaluation : pending) {
    EVALCAR_ASSIGN_OR_RETURN([[maybe_unused]] const Published published,
                             publish(evaluation.id, lag_steps));
    ++done;
    const bool last = &evaluation == &pending.back();
    if (!last && state_->options.enough && state_->options.enough()) {
      return make_error(ErrorCode::kCancelled, "the rest is published in the next turn");
    }
  }
  EVALCAR_RETURN_IF_ERROR(write_best(run_id));
  return done;
}

Result<std::optional<std::int64_t>> Publisher::best_evaluation(std::int64_t run_id,
                                                               const std::string& kind) const {
  return publish::best_evaluation(state_->store.read(), state_->options, run_id, kind);
}

Result<std::optional<bool>> Publisher::own_direction(std::int64_t run_id) const {
  return publish::own_direction(state_->store.read(), state_->options, run_id);
}

Status Publisher::replace_log() { return state_->log.replace(); }

Status Publisher::write_best(std::int64_t run_id) {
  EVALCAR_RETURN_IF_ERROR(state_->ask_fence());
  return publish::write_best(state_->files, state_->store.read(), state_->options, run_id);
}

}  // namespace evalcar::publish
