#include "agent/run/requested.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "agent/run/rows.h"

namespace evalcar::run {
namespace {

using OrderedJson = nlohmann::ordered_json;
using request::JobNews;
using request::JobPlan;
using state::EvaluationState;

bool holds_all(const std::vector<std::string>& tasks, const std::vector<std::string>& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const std::string& task) {
    return std::find(tasks.begin(), tasks.end(), task) != tasks.end();
  });
}

std::string dump(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

/// What a client reads without opening a file.
OrderedJson details_of(const state::Evaluation& row, const protocol::EvaluationResult& part) {
  OrderedJson metrics = OrderedJson::object();
  OrderedJson samples = OrderedJson::object();
  OrderedJson missing = OrderedJson::object();
  for (const protocol::TaskResult& task : part.tasks) {
    if (!task.error.empty()) {
      missing[task.task] = task.error;
      continue;
    }
    samples[task.task] = task.n;
    OrderedJson& of_task = metrics[task.task] = OrderedJson::object();
    for (const protocol::Metric& metric : task.metrics) {
      if (!metric.value.has_value()) {
        missing[task.task + "/" + metric.name] = metric.missing;
        continue;
      }
      of_task[metric.name] = *metric.value;
      if (metric.stderr_value.has_value()) of_task[metric.name + "_stderr"] = *metric.stderr_value;
    }
  }
  OrderedJson details = {{"metrics", std::move(metrics)},
                         {"samples", std::move(samples)},
                         {"weights_sha256", part.weights_sha256},
                         {"checkpoint_type", row.kind},
                         {"global_step", row.step},
                         {"seconds", part.seconds},
                         {"evaluation_id", row.id}};
  if (!missing.empty()) details["missing"] = std::move(missing);
  return details;
}

/// A reason that the watcher gives where there are no weights, not where something is wrong with
/// them.
bool is_absence(std::string_view reason) {
  return reason == kNotInCheckpoint || reason.find(kEmaNotStarted) != std::string_view::npos;
}

/// The policy gave it up for a newer one; nobody measured its weights.
bool gave_way(const state::Evaluation& row) {
  return row.state == EvaluationState::kSuperseded && row.reason == kNewerCame;
}

std::string holds_none(const state::Evaluation& row, const std::string& reason) {
  return row.checkpoint + " holds no " + (row.kind == "ema" ? "EMA" : row.kind) +
         " weights: " + reason;
}

JobNews news_of(const JobPlan& plan, const char* status, std::string reason = {}) {
  JobNews news;
  news.id = plan.id;
  news.status = status;
  news.reason = std::move(reason);
  return news;
}

}  // namespace

Result<std::optional<state::Checkpoint>> Requested::checkpoint_of(const JobPlan& plan) const {
  EVALCAR_ASSIGN_OR_RETURN(const auto all, store_.read().checkpoints(run_.id()));
  std::optional<state::Checkpoint> newest;
  for (const state::Checkpoint& checkpoint : all) {
    if (checkpoint.name != base_name(plan.checkpoint)) continue;
    // A folder that is there is what was asked for, not weights of its step that lay elsewhere.
    if (is_snapshot(checkpoint) && view_.present.contains(checkpoint.step)) continue;
    if (!newest.has_value() || checkpoint.generation > newest->generation) newest = checkpoint;
  }
  return newest;
}

/// That of the configuration if it measures just this, maybe among other tasks.
state::NewEvaluation Requested::row_for(const JobPlan& plan, std::int64_t checkpoint_id) const {
  for (state::NewEvaluation& configured : wanted_.evaluations_of(checkpoint_id, plan.kind)) {
    const bool same_settings = state::settings_sha256(configured.settings, configured.dtype) ==
                               state::settings_sha256(plan.settings, plan.dtype);
    if (same_settings && holds_all(configured.settings.tasks, plan.settings.tasks)) {
      return std::move(configured);
    }
  }
  state::NewEvaluation own;
  own.checkpoint_id = checkpoint_id;
  own.kind = plan.kind;
  own.dtype = plan.dtype;
  own.settings = plan.settings;
  own.settings.requested = 1;
  return own;
}

Result<std::optional<state::Evaluation>> Requested::own_row(const JobPlan& plan) const {
  if (!run_.known()) return std::optional<state::Evaluation>();
  EVALCAR_ASSIGN_OR_RETURN(const auto checkpoint, checkpoint_of(plan));
  if (!checkpoint.has_value()) return std::optional<state::Evaluation>();
  const state::NewEvaluation wanted = row_for(plan, checkpoint->id);
  if (wanted.settings.requested == 0) return std::optional<state::Evaluation>();
  EVALCAR_ASSIGN_OR_RETURN(auto row, store_.plan_evaluation(wanted));
  return std::optional(std::move(row));
}

Result<std::optional<JobNews>> Requested::look(const JobPlan& plan, const Asked& asked) {
  EVALCAR_ASSIGN_OR_RETURN(const auto checkpoint, checkpoint_of(plan));
  if (!checkpoint.has_value()) return std::optional<JobNews>();
  EVALCAR_ASSIGN_OR_RETURN(state::Evaluation row,
                           store_.plan_evaluation(row_for(plan, checkpoint->id)));
  EVALCAR_ASSIGN_OR_RETURN(const std::string never, begin(row, *checkpoint, asked));
  if (!never.empty()) return std::optional(news_of(plan, "failed", never));
  // Neither a cadence nor a newer checkpoint ends what a job waits for.
  if (run::is_open(row.state) && row.settings.requested == 0 && !row.asked) {
    EVALCAR_RETURN_IF_ERROR(store_.set_asked(row.id));
  }
  // The configuration skips what is not there for it, and a folder that was made anew is seen soon;
  // this job has yet to get its own chance.
  const bool passed_over =
      gave_way(row) || (row.state == EvaluationState::kSkipped && !is_absence(row.reason));
  const bool made_anew = row.state == EvaluationState::kLost && is_there(row);
  if (asked.first && (passed_over || made_anew)) return std::optional<JobNews>();
  EVALCAR_ASSIGN_OR_RETURN(auto waits, not_yet(plan, row, asked));
  if (waits.has_value()) return waits;
  EVALCAR_ASSIGN_OR_RETURN(JobNews news, standing(plan, row));
  return std::optional(std::move(news));
}

/// Numbers are an answer only if they are of the weights that are there. What was published of a
/// folder that is may be of others: whoever asks may have written it again a moment ago. Absent:
/// they are, as far as a look after the question tells.
Result<std::optional<JobNews>> Requested::not_yet(const JobPlan& plan, const state::Evaluation& row,
                                                  const Asked& asked) {
  const auto kind = checkpoint::weights_kind_from_name(row.kind);
  const bool measured =
      row.state == EvaluationState::kPublished || row.state == EvaluationState::kSuperseded;
  if (!measured || !kind.has_value() || !is_there(row)) return std::optional<JobNews>();
  JobNews news = news_of(plan, "queued", "its weights are looked at");
  news.undecided = true;
  if (!watcher_.looked_at(row.step, asked.since)) {
    watcher_.look_again(row.step);
    return std::optional(std::move(news));
  }
  const auto told = view_.told.find({row.step, *kind});
  if (told == view_.told.end()) return std::optional<JobNews>();
  switch (told->second.verdict) {
    case watch::Verdict::kWaiting:
      break;
    case watch::Verdict::kTorn:
    case watch::Verdict::kOvertaken:
    case watch::Verdict::kUnreadable: {
      // What a delete has left is no other content.
      EVALCAR_ASSIGN_OR_RETURN(const bool overwritten, is_overwritten(row));
      if (!overwritten) return std::optional<JobNews>();
      const std::string broken = why_broken(row, asked);
      if (!broken.empty()) {
        return std::optional(news_of(plan, "failed",
                                     row.checkpoint + " was written again, and its " + row.kind +
                                         " weights are not complete: " + broken));
      }
      break;
    }
    default:
      return std::optional<JobNews>();
  }
  news.reason = "the " + row.kind + " weights are not complete: " + told->second.reason;
  return std::optional(std::move(news));
}

/// A file of the weights that the row knows is there and is another one.
Result<bool> Requested::is_overwritten(const state::Evaluation& row) const {
  EVALCAR_ASSIGN_OR_RETURN(const auto judged, store_.read().files_of(row.checkpoint_id, row.kind));
  return std::ranges::any_of(judged, [&](const state::FileIdentity& file) {
    const auto now = files_.info_followed(join_path(row.checkpoint_path, file.path));
    return now.has_value() && watch::holds_weights(file.path) &&
           (now->size_bytes != file.size_bytes || now->mtime_ns != file.mtime_ns);
  });
}

Result<JobNews> Requested::standing(const JobPlan& plan, const state::Evaluation& row) {
  JobNews news = news_of(plan, "queued", row.reason);
  switch (row.state) {
    case EvaluationState::kPublished:
      return finished(plan, row);
    case EvaluationState::kSuperseded:
      return of_twin(plan, row);
    case EvaluationState::kSkipped:
      if (is_absence(row.reason)) return news;  // they may still come: see why_never()
      [[fallthrough]];
    case EvaluationState::kQuarantined:
    case EvaluationState::kLost:
      return news_of(
          plan, "failed",
          "the evaluation is " + std::string(state::state_name(row.state)) + ": " + row.reason);
    case EvaluationState::kFound: {
      EVALCAR_ASSIGN_OR_RETURN(const std::string lacks,
                               store_.read().incomplete_reason(row.checkpoint_id, plan.kind));
      news.reason = "the " + plan.kind +
                    " weights are not complete: " + (lacks.empty() ? "none were seen" : lacks);
      break;
    }
    case EvaluationState::kLoading:
    case EvaluationState::kEvaluating:
    case EvaluationState::kScored:
      news.status = "running";
      news.stage = row.state == EvaluationState::kScored ? "publishing" : row.stage;
      news.done = row.progress_done;
      news.total = row.progress_total;
      break;
    case EvaluationState::kComplete:
    case EvaluationState::kLeased:
    case EvaluationState::kFailed:
      break;
  }
  return news;
}

Result<std::string> Requested::begin(state::Evaluation& row, const state::Checkpoint& checkpoint,
                                     const Asked& asked) {
  const bool has_not_begun = row.state == EvaluationState::kFound;
  const bool ended_without = gave_way(row) || (state::is_end_state(row.state) &&
                                               row.state != EvaluationState::kPublished &&
                                               row.state != EvaluationState::kSuperseded);
  const bool was_absent = row.state == EvaluationState::kSkipped && is_absence(row.reason);
  if (!has_not_begun && !was_absent && !(asked.first && ended_without)) return std::string();
  const auto kind = checkpoint::weights_kind_from_name(row.kind);
  const watch::Sighting* const seen =
      kind.has_value() ? view_.whole_in(row.checkpoint_path, {row.step, *kind}) : nullptr;
  if (seen == nullptr) {
    if (!checkpoint.gone_at.empty() && !is_there(row)) {
      constexpr const char* kGone = "its checkpoint is gone, and so are its files";
      if (has_not_begun && row.settings.requested != 0) {  // nobody else would end it
        EVALCAR_RETURN_IF_ERROR(end_evaluation(store_, row.id, EvaluationState::kLost, kGone));
      }
      return std::string(kGone);
    }
    const std::string why = why_never(row, asked);
    if (why.empty()) {
      const std::string broken = why_broken(row, asked);
      return broken.empty()
                 ? broken
                 : row.checkpoint + ": its " + row.kind + " weights are not complete: " + broken;
    }
    if (has_not_begun && is_absence(why)) {
      EVALCAR_RETURN_IF_ERROR(end_evaluation(store_, row.id, EvaluationState::kSkipped, why));
    }
    return holds_none(row, why);
  }
  if (has_not_begun) {
    EVALCAR_RETURN_IF_ERROR(store_.transition(row.id, EvaluationState::kComplete));
  } else {
    EVALCAR_RETURN_IF_ERROR(store_.ask_again(row.id, "a job asks for it"));
  }
  EVALCAR_ASSIGN_OR_RETURN(row, store_.read().evaluation(row.id));
  EVALCAR_RETURN_IF_ERROR(leases_.take(row, *seen));
  EVALCAR_ASSIGN_OR_RETURN(row, store_.read().evaluation(row.id));
  return std::string();
}

/// Why weights that are not complete never will be, since their save is over without them; "": they
/// may.
std::string Requested::why_never(const state::Evaluation& row, const Asked& asked) const {
  using checkpoint::WeightsKind;
  const bool is_ema = row.kind == "ema";
  const auto told = [&](WeightsKind kind) {
    const auto found = view_.told.find({row.step, kind});
    return found == view_.told.end() ? std::nullopt : std::optional(found->second);
  };
  const auto own = told(is_ema ? WeightsKind::kEma : WeightsKind::kRegular);
  // Most layouts have no place for EMA weights: nothing is told of them.
  const bool absent = own.has_value() ? own->verdict == watch::Verdict::kNotStarted : is_ema;
  std::string why = own.has_value() ? own->reason : std::string(kNotInCheckpoint);
  const auto other = told(is_ema ? WeightsKind::kRegular : WeightsKind::kEma);
  const bool other_is_whole = other.has_value() && other->verdict == watch::Verdict::kComplete;
  if (!other_is_whole && why == kNotInCheckpoint) return "";  // all of it is still to come
  const auto newest = view_.newest_step();
  const bool overtaken = newest.has_value() && *newest > row.step;
  const bool never = absent ? overtaken || watcher_.rests(row.step, asked.since)
                            : is_ema && overtaken && other_is_whole;
  return never ? why : "";
}

/// What is wrong with weights that will not become whole, as far as one can tell: nothing is
/// written any more. "": nothing is, or they may. What comes after all is for who asks then.
std::string Requested::why_broken(const state::Evaluation& row, const Asked& asked) const {
  const auto kind = checkpoint::weights_kind_from_name(row.kind);
  if (!kind.has_value()) return "";
  const auto told = view_.told.find({row.step, *kind});
  if (told == view_.told.end()) return "";
  const watch::Verdict verdict = told->second.verdict;
  const bool broken = verdict == watch::Verdict::kTorn || verdict == watch::Verdict::kOvertaken ||
                      verdict == watch::Verdict::kUnreadable;
  return broken && watcher_.rests(row.step, asked.since) ? told->second.reason : "";
}

/// The same weights were measured at this step already; or their numbers are still on their way.
Result<JobNews> Requested::of_twin(const JobPlan& plan, const state::Evaluation& row) {
  EVALCAR_ASSIGN_OR_RETURN(const auto rows,
                           store_.read().evaluations({.run_id = row.run_id, .step = row.step}));
  const state::Evaluation* on_its_way = nullptr;
  for (const state::Evaluation& other : rows) {
    if (other.kind != row.kind || other.weights_sha256 != row.weights_sha256 ||
        row.weights_sha256.empty() || other.settings_sha256 != row.settings_sha256 ||
        !holds_all(other.settings.tasks, plan.settings.tasks)) {
      continue;
    }
    if (other.state == EvaluationState::kPublished) return finished(plan, other);
    if (!state::is_end_state(other.state)) on_its_way = &other;
  }
  if (on_its_way != nullptr) return standing(plan, *on_its_way);
  return news_of(plan, "failed", row.reason);
}

Result<JobNews> Requested::finished(const JobPlan& plan, const state::Evaluation& row) {
  EVALCAR_ASSIGN_OR_RETURN(protocol::EvaluationResult part, store_.read().result(row.id));
  std::erase_if(part.tasks, [&](const protocol::TaskResult& task) {
    return !holds_all(plan.settings.tasks, {task.task});
  });
  std::string errors;
  bool any = false;
  for (const protocol::TaskResult& task : part.tasks) {
    any |= task.error.empty();
    if (!task.error.empty()) errors += (errors.empty() ? "" : "; ") + task.task + ": " + task.error;
  }
  if (!any) return news_of(plan, "failed", errors.empty() ? "nothing was measured" : errors);
  auto written = publishing_.files_for(plan, row, part);
  std::string not_there;
  if (!written.has_value() && !plan.output_dir.empty()) {  // then where this run's results are
    not_there = written.error().message;
    JobPlan here = plan;
    here.output_dir.clear();
    written = publishing_.files_for(here, row, part);
  }
  if (!written.has_value()) return std::move(written).error();
  const publish::ResultsFiles& files = *written;
  JobNews news = news_of(plan, "completed");
  OrderedJson result = OrderedJson::object();
  result[publish::sanitized_model_name(row.checkpoint_path)] = {{"results", files.results},
                                                                {"samples", files.samples}};
  news.result = dump(result);
  OrderedJson details = details_of(row, part);
  if (!not_there.empty()) details["output_dir_error"] = not_there;
  news.details = dump(details);
  return news;
}

Status Requested::drop(const state::Evaluation& row) {
  if (!run::is_open(row.state)) return {};
  EVALCAR_RETURN_IF_ERROR(
      end_evaluation(store_, row.id, EvaluationState::kSkipped, "cancelled: no job asks for it"));
  leases_.release(row);
  return {};
}

}  // namespace evalcar::run
