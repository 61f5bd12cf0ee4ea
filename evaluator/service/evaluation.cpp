#include "evaluator/service/evaluation.h"

#include <algorithm>
#include <iostream>
#include <optional>

#include "evaluator/engine/gathering.h"
#include "evaluator/service/answers.h"
#include "evaluator/service/anytime.h"
#include "evaluator/service/preparation.h"
#include "evaluator/service/scoring.h"
#include "evaluator/service/task_job.h"
#include "evaluator/service/wrapper.h"

namespace evalcar::service {
namespace {

Error cancelled() { return make_error(ErrorCode::kCancelled, "evaluation cancelled"); }

/// Its scorer draws at random what cannot be parsed, and its draws go on from task to task.
bool draws(const tasks::TaskFile& file) { return file.scorer == "mmmu"; }

class Evaluation {
 public:
  Evaluation(engine::Engine& engine, const engine::LoadedWeights& weights, const ModelText& model,
             const FileSystem& files, const Kept& kept, const protocol::Evaluate& asked,
             const KnownAnswers& known, PreviousAnswers& previous, const EvaluationEvents& events,
             std::stop_token stop, vision::ProcessorSettings processor)
      : engine_(engine),
        weights_(weights),
        model_(model),
        files_(files),
        settings_(asked.settings),
        measured_(asked.measured),
        interim_at_(asked.interim_at),
        series_(asked.series),
        known_(known),
        previous_(previous),
        events_(events),
        stop_(std::move(stop)),
        cache_(kept.tasks),
        wrapper_(wrapper_of(weights)),
        pictures_(processor, kept.pictures),
        scoring_{settings_, weights_, model_, events_, stop_} {}

  Result<protocol::EvaluationResult> run() {
    EVALCAR_ASSIGN_OR_RETURN(choice_,
                             engine_.choose({settings_.attn_implementation, settings_.batch_size}));
    if (!choice_.warning.empty()) std::cerr << "warning: " << choice_.warning << '\n';
    common_ = common_identity(weights_, model_.files_sha256, settings_, choice_);
    way_ = series_way(weights_, model_.base_model);
    jobs_ = open_jobs(files_, settings_, measured_, model_, wrapper_, common_, way_, cache_, stop_);
    EVALCAR_RETURN_IF_ERROR(prepare_all(
        {weights_, model_, wrapper_, settings_, events_, cache_, stop_}, jobs_, pictures_, plan_));
    settle_fingerprints();
    take_known_answers();
    drop_requests();
    add_drafts();
    order_by_stages();
    EVALCAR_RETURN_IF_ERROR(generate());
    tell_reused();
    EVALCAR_RETURN_IF_ERROR(show_pictures());
    return scoring_.score_all(jobs_, pictures_, choice_.attn_implementation);
  }

 private:
  void settle_fingerprints() {
    std::vector<protocol::TaskFingerprint> told;
    std::vector<TaskIdentity> drawn;
    for (TaskJob* const job : in_lmms_eval_order(jobs_)) {
      if (!job->wanted()) continue;
      if (draws(job->task->file())) {
        for (const TaskIdentity& earlier : drawn) job->gathered->add_earlier(earlier);
      }
      const TaskIdentity identity = job->gathered->finish();
      job->fingerprint = identity.fingerprint;
      job->question = identity.question;
      if (draws(job->task->file())) drawn.push_back(identity);
      told.push_back({job->name, job->fingerprint});
    }
    events_.prepared(told);
  }

  void take_known_answers() {
    std::size_t end = 0;
    for (std::size_t first = 0; first < plan_.targets.size(); first = end) {
      const Target& target = plan_.targets[first];
      end = first + 1;  // a document's requests stand together
      while (end < plan_.targets.size() && plan_.targets[end].part > 0) ++end;
      TaskJob& job = jobs_[target.job];
      const auto answer = known_.find({job.name, job.fingerprint, job.documents[target.document]});
      if (job.failure.has_value() || answer == known_.end()) continue;
      if (!answers_requests(answer->second,
                            std::span(plan_.requests).subspan(first, end - first))) {
        std::cerr << "warning: " << job.name << ": document " << job.documents[target.document]
                  << ": what an earlier attempt stored is no answer to what is asked: it is asked "
                     "again\n";
        continue;
      }
      job.responses[target.document] = answer->second;
      for (std::size_t i = first; i < end; ++i) plan_.requests[i].answered_before = true;
    }
  }

  /// A task that failed half way takes its requests with it: no time is spent on answers that
  /// nobody will score. Those that are answered stay, so that the others are computed beside them
  /// as they would have been.
  void drop_requests() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < plan_.targets.size(); ++i) {
      if (jobs_[plan_.targets[i].job].failure.has_value()) continue;
      if (kept != i) {
        plan_.targets[kept] = plan_.targets[i];
        plan_.requests[kept] = std::move(plan_.requests[i]);
      }
      ++kept;
    }
    plan_.targets.resize(kept);
    plan_.requests.resize(kept);
  }

  /// What an earlier checkpoint of the series answered to the same.
  void add_drafts() {
    if (series_.empty()) return;
    for (std::size_t i = 0; i < plan_.requests.size(); ++i) {
      engine::Request& request = plan_.requests[i];
      if (request.scoring.has_value()) continue;
      Target& target = plan_.targets[i];
      const TaskJob& job = jobs_[target.job];
      std::vector<Sha256Digest> pictures;
      for (const std::size_t image : request.images) pictures.push_back(pictures_.digest_of(image));
      target.question =
          question_of(series_, job.name, job.documents[target.document], request, pictures);
      const auto* const before = previous_.find(target.question);
      if (before == nullptr) continue;
      request.draft = *before;
      request.expected_tokens = static_cast<std::int64_t>(before->size());
    }
  }

  /// What is answered first for an interim score goes first; within a stage all stays as it was.
  void order_by_stages() {
    parts_.resize(jobs_.size());
    std::vector<std::vector<std::size_t>> stages(jobs_.size());
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      const TaskJob& job = jobs_[j];
      if (!job.wanted()) continue;
      parts_[j] = parts_of(job.name, settings_.seed, job.documents, job.units, interim_at_);
      stages[j] = stages_of(job.documents.size(), parts_[j], interim_at_);
    }
    Plan ordered;
    for (std::size_t stage = 0; stage <= interim_at_.size(); ++stage) {
      for (std::size_t i = 0; i < plan_.targets.size(); ++i) {
        Target& target = plan_.targets[i];
        target.stage = stages[target.job][target.document];
        if (target.stage != stage) continue;
        ordered.targets.push_back(target);
        ordered.requests.push_back(std::move(plan_.requests[i]));
      }
    }
    plan_ = std::move(ordered);
  }

  Status generate() {
    done_ = 0;
    awaited_ = std::ranges::count(plan_.requests, false, &engine::Request::answered_before);
    events_.progress("evaluating", "", done_, awaited_);
    // One rank so far: the engine that answers here has them all.
    engine::Gathering gathering(plan_.requests.size(), /*world_size=*/1);
    std::size_t first = 0;
    for (std::size_t stage = 0; stage <= interim_at_.size(); ++stage) {
      std::size_t end = first;
      while (end < plan_.targets.size() && plan_.targets[end].stage == stage) ++end;
      if (end > first) EVALCAR_RETURN_IF_ERROR(generate(first, end, gathering));
      if (stage < interim_at_.size()) EVALCAR_RETURN_IF_ERROR(tell_interim(interim_at_[stage]));
      first = end;
    }
    return gathering.complete([this](std::size_t place) {
      return is_wanted(place) && !plan_.requests[place].answered_before;
    });
  }

  /// A task that failed is not scored: its other answers would be thrown away.
  bool is_wanted(std::size_t place) const {
    return !jobs_[plan_.targets[place].job].failure.has_value();
  }

  /// The requests of the plan from `first` to before `end`.
  Status generate(std::size_t first, std::size_t end, engine::Gathering& gathering) {
    engine::RunEvents events;
    Status gathered;
    events.answered = [&](std::size_t index, const Result<engine::Answer>& answer) {
      const std::size_t place = first + index;
      if (gathered.has_value()) gathered = gathering.take(/*rank=*/0, place);
      if (!gathered.has_value()) return;
      const Target& target = plan_.targets[place];
      TaskJob& job = jobs_[target.job];
      if (answer.has_value() && target.question != 0)
        previous_.keep(target.question, answer->tokens);
      if (take_answer(job, {target.document, target.part}, answer, model_.tokenizer))
        events_.answered(job.name, job.responses[target.document]);
      events_.progress("evaluating", job.name, ++done_, awaited_);
    };
    events.wanted = [&](std::size_t index) { return is_wanted(first + index); };
    events.ends = [&](std::size_t index, std::span<const std::int32_t> tokens) {
      return jobs_[plan_.targets[first + index].job].stop_strings.end(tokens, model_.tokenizer);
    };
    events.advanced = events_.advanced;
    events.shrunk = [this](std::int64_t most, const std::string& reason) {
      scoring_.narrowed = true;
      std::cerr << "warning: " << reason << "; at most " << most << " prompts at once for now\n";
    };
    events.narrowed = [this](const std::string& reason) {
      if (!scoring_.narrowed) std::cerr << "warning: " << reason << "; fewer prompts go together\n";
      scoring_.narrowed = true;
    };
    events.encoded = [this](std::size_t pictures, bool reused) {
      (reused ? reused_ : encoded_) += pictures;
    };
    const std::span<const engine::Request> requests(plan_.requests);
    EVALCAR_RETURN_IF_ERROR(engine_.generate(requests.subspan(first, end - first), pictures_,
                                             pictures_.settings(), events, stop_));
    return gathered;
  }

  /// The reason why a checkpoint took less time than the one before it.
  void tell_reused() const {
    if (reused_ == 0) return;
    std::cerr << "pictures: " << reused_ << " of " << reused_ + encoded_
              << " taken as the same vision tower had encoded them before\n";
  }

  /// What was asked for at this fraction. A part that cannot be scored is not told: the result will
  /// say why.
  Status tell_interim(double fraction) {
    protocol::Interim interim;
    interim.weights_sha256 = weights_.weights_sha256;
    interim.fraction = fraction;
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      const auto part = std::ranges::find(parts_[j], fraction, &Part::fraction);
      if (part == parts_[j].end() || !jobs_[j].wanted()) continue;
      std::vector<const tasks::Response*> responses;
      for (const std::size_t d : part->documents) responses.push_back(&jobs_[j].responses[d]);
      auto score = interim_score(jobs_[j], *part, scoring_.options(jobs_[j], responses));
      if (stop_.stop_requested()) return cancelled();
      if (score.has_value()) interim.tasks.push_back(std::move(score).value());
    }
    if (!interim.tasks.empty() && events_.interim) events_.interim(std::move(interim));
    return {};
  }

  /// Those that no request asked for, as an earlier attempt answered it; the others are shown since
  /// they were read.
  Status show_pictures() {
    std::vector<bool> looked_at(pictures_.size());
    for (const TaskJob& job : jobs_) {
      if (!job.wanted()) continue;
      for (const std::vector<std::size_t>& of_document : job.pictures) {
        for (const std::size_t picture : of_document) {
          if (looked_at[picture]) continue;
          looked_at[picture] = true;
          if (stop_.stop_requested()) return cancelled();
          events_.advanced();
          pictures_.show(picture);
        }
      }
    }
    return {};
  }

  engine::Engine& engine_;
  const engine::LoadedWeights& weights_;
  const ModelText& model_;
  const FileSystem& files_;
  const protocol::EvaluationSettings& settings_;
  const std::vector<std::string>& measured_;
  const std::vector<double>& interim_at_;
  const std::string& series_;
  const KnownAnswers& known_;
  PreviousAnswers& previous_;
  const EvaluationEvents& events_;
  std::stop_token stop_;
  PreparationCache* const cache_;
  const Wrapper wrapper_;
  PictureSource pictures_;
  Scoring scoring_;
  engine::RunChoice choice_;
  std::string common_;  // common_identity()
  std::string way_;     // series_way()
  std::vector<TaskJob> jobs_;
  std::vector<std::vector<Part>> parts_;  // of each job, that get an interim score
  Plan plan_;
  std::int64_t done_ = 0;     // requests of the plan …
  std::int64_t awaited_ = 0;  // … and those that no earlier attempt answered
  std::size_t encoded_ = 0;   // pictures, by the vision tower
  std::size_t reused_ = 0;    // pictures, as it had encoded them before
};

}  // namespace

Result<protocol::EvaluationResult> run_evaluation(
    engine::Engine& engine, const engine::LoadedWeights& weights, const ModelText& model,
    const FileSystem& files, const Kept& kept, const protocol::Evaluate& asked,
    const KnownAnswers& known, PreviousAnswers& previous, const EvaluationEvents& events,
    std::stop_token stop) {
  const protocol::EvaluationSettings& settings = asked.settings;
  if (settings.compat != "lmms-eval" && settings.compat != "strict") {
    return make_error(ErrorCode::kInvalidArgument,
                      "compat = \"" + settings.compat + "\": expected \"lmms-eval\" or \"strict\"");
  }
  EVALCAR_RETURN_IF_ERROR(check_fractions(asked.interim_at));
  vision::ProcessorSettings processor;
  if (weights.reads_pictures()) {
    EVALCAR_ASSIGN_OR_RETURN(
        processor, vision::load_processor_settings(files, model.processor_dir,
                                                   wrapper_of(weights).pixels(settings, weights)));
  }
  return Evaluation(engine, weights, model, files, kept, asked, known, previous, events,
                    std::move(stop), processor)
      .run();
}

}  // namespace evalcar::service
