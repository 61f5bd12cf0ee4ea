#include "evaluator/service/scoring.h"

#include <map>
#include <memory>
#include <utility>

#include "store/protocol/wrapper_name.h"

namespace evalcar::service {
namespace {

Error cancelled() { return make_error(ErrorCode::kCancelled, "evaluation cancelled"); }

/// Whether an answer took all tokens that it may have, and none of them ended it. Of one that an
/// earlier process generated the count is known, in which an end token counts, too: its text
/// decides.
bool is_cut_off(const TaskJob& job, const tasks::Response& response,
                const text::Tokenizer& tokenizer) {
  if (response.cut_off.has_value()) return *response.cut_off;
  if (response.output_tokens < job.generation.max_new_tokens) return false;
  const auto tokens = tokenizer.encode(response.text, /*add_special_tokens=*/false);
  return tokens.has_value() &&
         static_cast<std::int64_t>(tokens->size()) >= job.generation.max_new_tokens;
}

Result<tasks::Scores> score(const Scoring& scoring, const TaskJob& job,
                            const PictureSource& pictures, tasks::PythonRandom& random) {
  std::vector<const tasks::Response*> responses;
  for (const tasks::Response& response : job.responses) responses.push_back(&response);
  tasks::ScoreOptions options = scoring.options(job, responses);
  options.truncated_pictures = pictures.cut_off_among(job.pictures);
  return tasks::score(*job.task, job.responses, job.inputs, options, random);
}

TaskFailure failure_of(Error error) {
  const bool data =
      error.code == ErrorCode::kCorruption || error.code == ErrorCode::kInvalidArgument;
  return data ? failed_by_data(std::move(error)) : failed(std::move(error));
}

protocol::TaskResult without_result(const TaskJob& job) {
  return {.task = job.name,
          .alias = job.name,
          .lmms_results = "{}",
          .lmms_config = "{}",
          .notes = "{}",
          .error = job.failure->error.message,
          .error_kind = job.failure->kind,
          .circumstances = job.failure->kind == protocol::kData ? job.data : ""};
}

}  // namespace

tasks::ScoreOptions Scoring::options(const TaskJob& job,
                                     std::span<const tasks::Response* const> responses) const {
  tasks::ScoreOptions options;
  options.compat = settings.compat;
  options.seed = settings.seed;
  options.bootstrap_iters = settings.bootstrap_iters;
  options.model_family = weights.architecture;
  options.gen_kwargs_json = job.generation_text;
  options.num_fewshot = job.shots;
  options.narrowed = narrowed;
  if (job.kind() != tasks::RequestKind::kGenerate) {
    options.cut_off = job.cut;
  } else {
    options.asked_as = protocol::wrapper_name(weights.architecture);
    options.draft_tokens = job.draft_tokens;
    options.draft_tokens_taken = job.draft_tokens_taken;
    options.max_new_tokens = job.generation.max_new_tokens;
    for (const tasks::Response* response : responses)
      options.cut_off += is_cut_off(job, *response, model.tokenizer);
  }
  options.advanced = events.advanced;
  options.stop = stop;
  return options;
}

Result<protocol::EvaluationResult> Scoring::score_all(
    std::vector<TaskJob>& jobs, const PictureSource& pictures,
    const std::string& attn_implementation) const {
  if (jobs.empty()) return make_error(ErrorCode::kInvalidArgument, "no tasks were asked for");
  // One generator for the whole run, and lmms-eval's order of tasks: its draws go on from task to
  // task.
  const std::shared_ptr<tasks::PythonRandom> random = tasks::make_python_random(settings.seed);
  std::map<std::string, protocol::TaskResult> scored;
  for (TaskJob* job : in_lmms_eval_order(jobs)) {
    if (!job->wanted() || scored.contains(job->name)) continue;
    if (stop.stop_requested()) return cancelled();
    events.progress("scoring", job->name, static_cast<std::int64_t>(scored.size()),
                    static_cast<std::int64_t>(jobs.size()));
    auto scores = score(*this, *job, pictures, *random);
    if (stop.stop_requested()) return cancelled();
    if (!scores.has_value()) {
      job->failure = failure_of(std::move(scores).error());
      continue;
    }
    for (std::size_t d = 0; d < scores->lines.size(); ++d) {
      events.scored(job->name, job->documents[d], scores->lines[d],
                    pictures.shown_names(job->pictures[d]));
    }
    scores->result.fingerprint = job->fingerprint;
    scores->result.question = job->question;
    scores->result.n_effective = job->effective;
    scored.emplace(job->name, std::move(scores->result));
  }
  protocol::EvaluationResult result;
  result.weights_sha256 = weights.weights_sha256;
  result.attn_implementation = attn_implementation;
  for (const TaskJob& job : jobs) {
    if (job.measured) continue;
    result.draft_tokens += job.draft_tokens;
    result.draft_tokens_taken += job.draft_tokens_taken;
    const auto found = scored.find(job.name);
    result.tasks.push_back(found != scored.end() ? std::move(found->second) : without_result(job));
  }
  return result;
}

}  // namespace evalcar::service
