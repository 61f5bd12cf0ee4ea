#include "agent/run/publishing.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "agent/run/rows.h"

namespace evalcar::run {
namespace {

constexpr std::chrono::seconds kLongestPublishPause{5};
constexpr std::chrono::milliseconds kLeastPause{100};

std::string publish_dir(const config::Settings& settings, const CurrentRun& run) {
  return settings.publish.dir.empty() ? run.home() : settings.publish.dir;
}

publish::PublisherOptions publisher_options(const Surroundings& around,
                                            const config::Settings& settings,
                                            const std::string& dir, CurrentRun& run) {
  publish::PublisherOptions options;
  options.dir = dir;
  options.tensorboard = settings.publish.tensorboard;
  options.metric_for_best_model = settings.publish.metric_for_best_model;
  options.greater_is_better = settings.publish.greater_is_better;
  options.aliases = around.aliases;
  options.publish_aliases = settings.publish.aliases;
  options.log_samples = settings.evaluate.log_samples;
  options.version = around.version;
  options.device = settings.evaluate.device;
  options.fence = [&run] { return run.check_owner(); };
  return options;
}

}  // namespace

Publishing::Publishing(const Surroundings& around, const config::Settings& settings,
                       state::Store& store, CurrentRun& run, const DiskView& view)
    : around_(around),
      settings_(settings),
      store_(store),
      run_(run),
      view_(view),
      dir_(publish_dir(settings, run)),
      publisher_(around.files, around.clock, store, [&] {
        publish::PublisherOptions options = publisher_options(around, settings, dir_, run);
        options.enough = [this] { return slice_.has_value() && slice_->over(); };
        return options;
      }()) {}

Status Publishing::publish(const state::Evaluation& row) {
  if (!run_.still_there()) {
    return not_published(make_error(ErrorCode::kUnavailable,
                                    run_.output_dir() +
                                        ": is not what it was; nothing is published before that is "
                                        "clear"));
  }
  if (const Status settled = settle_takeover(); !settled.has_value()) {
    return not_published(settled.error());
  }
  slice_.emplace(around_);
  const auto published = publisher_.publish(row.id, lag_of(row));
  slice_.reset();
  if (!published.has_value() && published.error().code == ErrorCode::kCancelled) {
    look_again_at(around_.clock.monotonic_now());  // somebody changed long files: they are read on
    return {};
  }
  if (!published.has_value()) {
    failures_ = 0;  // a new result gets all its tries
    return not_published(published.error());
  }
  if (row.settings.requested != 0) {
    log::info(title(row) + ": measured for a job, besides what is configured",
              event_of("published", row).with("file", published->results_file));
    return {};
  }
  judge_direction();
  log::info(fmt::format("{}: published{} ({})", title(row),
                        published->is_best ? ", the best so far" : "", published->results_file),
            event_of("published", row).with("best", published->is_best ? "yes" : "no"));
  return {};
}

Result<bool> Publishing::publish_interim(const state::Evaluation& row,
                                         const protocol::Interim& interim) {
  if (!run_.still_there()) {
    return make_error(ErrorCode::kUnavailable,
                      run_.output_dir() + ": is not what it was; nothing is published");
  }
  EVALCAR_RETURN_IF_ERROR(run_.ensure_home());
  EVALCAR_RETURN_IF_ERROR(settle_takeover());
  slice_.emplace(around_);
  const auto seq = publisher_.publish_interim(row.id, interim, lag_of(row));
  slice_.reset();
  if (!seq.has_value()) return seq.error();
  return seq->has_value();
}

namespace {

/// What was published of an evaluation, by the names of its files.
publish::ResultsFiles published_files(const state::Publication& publication) {
  publish::ResultsFiles files;
  for (const std::string& path : publication.files) {
    if (path.ends_with("_results.json")) files.results = path;
    if (path.ends_with(".jsonl")) files.samples.push_back(path);
    if (path.ends_with("_table.md")) files.table = path;
  }
  return files;
}

}  // namespace

Result<publish::ResultsFiles> Publishing::files_for(const request::JobPlan& plan,
                                                    const state::Evaluation& row,
                                                    const protocol::EvaluationResult& part) {
  if (plan.output_dir.empty() && part.tasks.size() == row.settings.tasks.size() &&
      plan.log_samples) {
    EVALCAR_ASSIGN_OR_RETURN(const auto publication, store_.read().publication(row.id));
    if (publication.has_value()) {
      publish::ResultsFiles files = published_files(*publication);
      const bool there =
          !files.results.empty() && around_.files.info_followed(files.results).has_value();
      if (there) return files;
    }
  }
  if (!run_.still_there()) {
    return make_error(ErrorCode::kUnavailable,
                      run_.output_dir() + ": is not what it was; nothing is written");
  }
  EVALCAR_RETURN_IF_ERROR(run_.ensure_home());
  const std::string dir = plan.output_dir.empty() ? join_path(publisher_.results_dir(row),
                                                              "job-" + plan.id.substr(0, 8))
                                                  : plan.output_dir;
  return publisher_.write_files_for(row.id, part, dir, plan.log_samples);
}

/// How far training is ahead, if known.
std::optional<std::int64_t> Publishing::lag_of(const state::Evaluation& row) const {
  const auto newest = view_.newest_step();
  if (!newest.has_value()) return std::nullopt;
  return std::max<std::int64_t>(0, *newest - row.step);
}

/// What was scored and is not published: by a killed process, or because a file could not be
/// written. Without a folder of ours and without such a row there is nothing.
Status Publishing::step() {
  if (!again_ || around_.clock.monotonic_now() < due_) return {};
  EVALCAR_ASSIGN_OR_RETURN(const auto scored, scored_rows());
  const auto home = around_.files.info_followed(run_.home());
  const bool has_home = home.has_value() && home->type == FileType::kDirectory;
  if (scored.empty() && !has_home) {
    again_ = false;
    return {};
  }
  EVALCAR_RETURN_IF_ERROR(run_.ensure_home());
  slice_.emplace(around_);
  const auto done = [this]() -> Result<std::int64_t> {
    EVALCAR_RETURN_IF_ERROR(settle_takeover());
    return publisher_.publish_pending(run_.id(), std::nullopt);
  }();
  slice_.reset();
  if (!done.has_value() && done.error().code == ErrorCode::kCancelled) return {};  // goes on
  if (!done.has_value()) {
    ++failures_;
    return not_published(done.error());
  }
  again_ = false;
  failures_ = 0;
  judge_direction();
  return {};
}

Status Publishing::write_best() {
  if (!run_.still_there()) return {};
  return publisher_.write_best(run_.id());
}

/// Who says that more is better of an error rate is obeyed, and told once: what is kept is then the
/// worst.
void Publishing::judge_direction() {
  const config::PublishSettings& publish = settings_.publish;
  if (!publish.greater_is_better.has_value() || direction_judged_) return;
  const auto own = publisher_.own_direction(run_.id());
  if (!own.has_value() || !own->has_value()) return;  // no number of it yet
  direction_judged_ = true;
  if (**own == *publish.greater_is_better) return;
  spdlog::warn(
      "publish.greater_is_better = {}, but of {} (publish.metric_for_best_model) the {} value is "
      "the better one: best.json and publish.keep_best name what is the worst by the metric itself",
      *publish.greater_is_better, publish.metric_for_best_model, **own ? "higher" : "lower");
}

/// The one who had the directory before may still write to the file that he has open.
Status Publishing::settle_takeover() {
  if (!run_.took_over()) return {};
  EVALCAR_RETURN_IF_ERROR(publisher_.replace_log());
  run_.settle_takeover();
  return {};
}

void Publishing::look_again_at(MonotonicTime time) {
  again_ = true;
  due_ = time;
}

Result<std::vector<state::Evaluation>> Publishing::scored_rows() const {
  state::EvaluationFilter filter;
  filter.run_id = run_.id();
  filter.states = {state::EvaluationState::kScored};
  return store_.read().evaluations(filter);
}

/// The numbers are safe in the database; the rows say why they are not handed out yet.
Status Publishing::not_published(const Error& error) {
  look_again_at(around_.clock.monotonic_now() +
                std::clamp<MonotonicTime::duration>(settings_.limits.retry_delay, kLeastPause,
                                                    kLongestPublishPause));
  if (!run_.known()) return error;
  EVALCAR_ASSIGN_OR_RETURN(const auto rows, scored_rows());
  for (const state::Evaluation& row : rows) {
    EVALCAR_RETURN_IF_ERROR(store_.set_reason(row.id, "not published yet: " + error.message));
  }
  return error;
}

bool Publishing::failing() const { return again_ && failures_ >= settings_.limits.attempts; }

}  // namespace evalcar::run
