#include "evaluator/service/evaluation.h"

#include <algorithm>
#include <iostream>
#include <optional>

#include "evaluator/engine/gathering.h"
#include "evaluator/service/answers.h"
#include "evaluator/service/anytime.h"
#include "evaluator/service/document_requests.h"
#include "evaluator/service/scoring.h"
#include "evaluator/service/task_job.h"
#include "evaluator/service/wrapper.h"
#include "store/base/hash.h"

namespace evalcar::service {
namespace {

/// Which document a request of the engine answers.
struct Target {
  std::size_t job = 0;
  std::size_t document = 0;  // index into TaskJob::documents
  bool answered = false;     // by an earlier attempt
  std::size_t part = 0;      // which of the document's requests
  std::size_t stage = 0;     // after which of Evaluate::interim_at it is answered
};

struct Plan {
  std::vector<engine::Request> requests;
  std::vector<Target> targets;
};

Error cancelled() { return make_error(ErrorCode::kCancelled, "evaluation cancelled"); }

/// Which draws a document's answer makes. It must not depend on which other answers are asked for.
std::uint64_t stream_of(const std::string& task, std::int64_t doc_id) {
  const std::string name = task + "\n" + std::to_string(doc_id);
  return xxh3_64(std::as_bytes(std::span(name)));
}

/// What may be answered without the others: a document, or those over the same pictures.
std::uint64_t unit_of(const std::string& task, std::int64_t doc_id,
                      std::span<const Sha256Digest> pictures) {
  if (pictures.empty()) return stream_of(task, doc_id);
  return xxh3_64(std::as_bytes(pictures));
}

/// Its scorer draws at random what cannot be parsed, and its draws go on from task to task.
bool draws(const tasks::TaskFile& file) { return file.scorer == "mmmu"; }

class Evaluation {
 public:
  Evaluation(engine::Engine& engine, const engine::LoadedWeights& weights, const ModelText& model,
             const FileSystem& files, const KeptPictures& kept, const protocol::Evaluate& asked,
             const KnownAnswers& known, const EvaluationEvents& events, std::stop_token stop,
             vision::ProcessorSettings processor)
      : engine_(engine),
        weights_(weights),
        model_(model),
        files_(files),
        settings_(asked.settings),
        measured_(asked.measured),
        interim_at_(asked.interim_at),
        known_(known),
        events_(events),
        stop_(std::move(stop)),
        wrapper_(wrapper_of(weights)),
        encoder_{model, wrapper_, weights.image_token_id, model.max_positions},
        pictures_(processor, kept),
        scoring_{settings_, weights_, model_, events_, stop_} {}

  Result<protocol::EvaluationResult> run() {
    EVALCAR_ASSIGN_OR_RETURN(choice_,
                             engine_.choose({settings_.attn_implementation, settings_.batch_size}));
    if (!choice_.warning.empty()) std::cerr << "warning: " << choice_.warning << '\n';
    common_ = common_identity(weights_, model_.files_sha256, settings_, choice_);
    jobs_ = open_jobs(files_, settings_, measured_, model_, wrapper_.most_tokens, common_);
    EVALCAR_RETURN_IF_ERROR(prepare_all());
    settle_fingerprints();
    take_known_answers();
    drop_requests();
    order_by_stages();
    EVALCAR_RETURN_IF_ERROR(generate());
    EVALCAR_RETURN_IF_ERROR(show_pictures());
    return scoring_.score_all(jobs_, pictures_, choice_.attn_implementation);
  }

 private:
  Status prepare_all() {
    std::int64_t total = 0;
    std::int64_t done = 0;
    for (const TaskJob& job : jobs_) {
      if (!job.measured) total += static_cast<std::int64_t>(job.documents.size());
    }
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      TaskJob& job = jobs_[j];
      if (job.wanted() && job.shots > 0) job.failure = draw_examples(job);
      if (stop_.stop_requested()) return cancelled();
      for (std::size_t d = 0; d < job.documents.size() && job.wanted(); ++d, ++done) {
        if (stop_.stop_requested()) return cancelled();
        events_.advanced();
        if (done % 16 == 0) events_.progress("preparing", job.name, done, total);
        job.failure = prepare(j, d);
        if (job.failure.has_value())
          job.failure->error = of_document(std::move(job.failure->error), job, d);
      }
      if (job.wanted() && (plan_.targets.empty() || plan_.targets.back().job != j))
        job.failure = nothing_left(job);
    }
    return {};
  }

  /// All at once: which examples a prompt has depends on the prompts before it.
  std::optional<TaskFailure> draw_examples(TaskJob& job) {
    const bool strict = settings_.compat == "strict";
    auto texts = job.task->few_shot(job.documents, weights_.architecture,
                                    {.shots = job.shots,
                                     .seed = protocol::fewshot_seed_of(settings_.seed),
                                     .turn = strict ? tasks::FewShotTurn::kLogged : wrapper_.turn,
                                     .advanced = events_.advanced,
                                     .stop = stop_});
    if (!texts.has_value()) return failed_by_data(std::move(texts).error());
    job.inputs = std::move(texts->inputs);
    job.prompts = std::move(texts->prompts);
    return std::nullopt;
  }

  void settle_fingerprints() {
    std::vector<protocol::TaskFingerprint> told;
    std::vector<std::string> drawn;
    for (TaskJob* const job : in_lmms_eval_order(jobs_)) {
      if (!job->wanted()) continue;
      if (draws(job->task->file())) {
        for (const std::string& earlier : drawn) job->gathered->add_part(earlier);
      }
      job->fingerprint = job->gathered->finish();
      if (draws(job->task->file())) drawn.push_back(job->fingerprint);
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
      for (std::size_t i = first; i < end; ++i) plan_.targets[i].answered = true;
    }
  }

  /// Those that are answered; and a task that failed half way takes its requests with it: no time
  /// is spent on answers that nobody will score.
  void drop_requests() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < plan_.targets.size(); ++i) {
      if (plan_.targets[i].answered || jobs_[plan_.targets[i].job].failure.has_value()) continue;
      if (kept != i) {
        plan_.targets[kept] = plan_.targets[i];
        plan_.requests[kept] = std::move(plan_.requests[i]);
      }
      ++kept;
    }
    plan_.targets.resize(kept);
    plan_.requests.resize(kept);
  }

  std::optional<TaskFailure> prepare(std::size_t j, std::size_t d) {
    TaskJob& job = jobs_[j];
    const std::int64_t doc_id = job.documents[d];
    auto prompt = job.task->prompt(doc_id, weights_.architecture);
    if (!prompt.has_value()) return failed_by_data(std::move(prompt).error());
    if (job.shots == 0) {
      job.inputs[d] = prompt->input;
    } else {  // a task without pictures: its message is one text
      prompt->messages.back().content.back().text = job.prompts[d];
    }
    if (!prompt->images.empty() && !weights_.reads_pictures()) return shows_pictures();
    std::vector<std::size_t> images;
    std::vector<std::int64_t> placeholders;
    if (Status added = add_pictures(job, doc_id, *prompt, images, placeholders); !added.has_value())
      return failed_by_data(std::move(added).error());
    auto made = encoder_.requests_of(job.task->file().request, *prompt, placeholders);
    if (!made.has_value()) {
      // What is scored is the document itself; a prompt is the task's.
      const bool of_document = made.error().code == ErrorCode::kCorruption &&
                               job.kind() != tasks::RequestKind::kGenerate;
      return of_document ? failed_by_data(std::move(made).error())
                         : failed(std::move(made).error());
    }
    auto document = job.task->document_json(doc_id);
    if (!document.has_value()) return failed_by_data(std::move(document).error());
    std::vector<Sha256Digest> pictures;
    for (const std::size_t picture : images) pictures.push_back(pictures_.digest_of(picture));
    job.units[d] = unit_of(job.name, doc_id, pictures);
    job.pictures[d] = images;
    job.cut += made->cut ? 1 : 0;
    job.likelihoods[d].resize(made->requests.size());
    if (made->requests.empty()) {  // it is answered: nothing of it is asked
      job.responses[d] = {.doc_id = doc_id,
                          .text = tasks::encode_likelihoods({}),
                          .output_tokens = 0,
                          .cut_off = false};
      job.gathered->add(doc_id, *document, engine::Request{}, pictures);
    }
    for (std::size_t part = 0; part < made->requests.size(); ++part) {
      engine::Request& request = made->requests[part];
      request.images = images;
      request.generation = job.generation;
      request.stream = stream_of(job.name, doc_id);
      job.gathered->add(doc_id, *document, request, pictures);
      plan_.requests.push_back(std::move(request));
      plan_.targets.push_back({.job = j, .document = d, .part = part});
    }
    return std::nullopt;
  }

  static TaskFailure nothing_left(const TaskJob& job) {
    const auto most = job.task->file().request.max_length;
    return failed_by_data(
        make_error(ErrorCode::kCorruption,
                   job.name + ": of none of its " + std::to_string(job.documents.size()) +
                       " documents a token of the assistant's is left before [request] max_length" +
                       (most.has_value() ? " = " + std::to_string(*most) : std::string()) +
                       "; expected a length that holds answers"));
  }

  /// The task and the model do not go together: every checkpoint fares alike.
  TaskFailure shows_pictures() const {
    return failed(make_error(ErrorCode::kInvalidArgument,
                             "its prompt shows a picture, and a " + weights_.architecture +
                                 " model reads text alone: take the task out of evaluate.tasks"));
  }

  Status add_pictures(const TaskJob& job, std::int64_t doc_id, const tasks::Prompt& prompt,
                      std::vector<std::size_t>& images, std::vector<std::int64_t>& placeholders) {
    for (std::size_t i = 0; i < prompt.images.size(); ++i) {
      const std::string name =
          job.name + ": document " + std::to_string(doc_id) + ", picture " + std::to_string(i + 1);
      EVALCAR_ASSIGN_OR_RETURN(
          const std::size_t picture,
          pictures_.add(*job.task, doc_id, i, weights_.architecture, prompt.images[i], name));
      images.push_back(picture);
      placeholders.push_back(pictures_.size_of(picture).tokens);
    }
    return {};
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
    events_.progress("evaluating", "", done_, static_cast<std::int64_t>(plan_.requests.size()));
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
    return gathering.complete([this](std::size_t place) { return is_wanted(place); });
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
      if (take_answer(job, {target.document, target.part}, answer, model_.tokenizer,
                      settings_.compat == "strict"))
        events_.answered(job.name, job.responses[target.document]);
      events_.progress("evaluating", job.name, ++done_,
                       static_cast<std::int64_t>(plan_.requests.size()));
    };
    events.wanted = [&](std::size_t index) { return is_wanted(first + index); };
    events.advanced = events_.advanced;
    events.shrunk = [](std::int64_t most, const std::string& reason) {
      std::cerr << "warning: " << reason << "; at most " << most << " prompts at once for now\n";
    };
    const std::span<const engine::Request> requests(plan_.requests);
    EVALCAR_RETURN_IF_ERROR(engine_.generate(requests.subspan(first, end - first), pictures_,
                                             pictures_.settings(), events, stop_));
    return gathered;
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
  const KnownAnswers& known_;
  const EvaluationEvents& events_;
  std::stop_token stop_;
  const Wrapper wrapper_;
  const RequestEncoder encoder_;
  PictureSource pictures_;
  const Scoring scoring_;
  engine::RunChoice choice_;
  std::string common_;  // common_identity()
  std::vector<TaskJob> jobs_;
  std::vector<std::vector<Part>> parts_;  // of each job, that get an interim score
  Plan plan_;
  std::int64_t done_ = 0;  // requests of the plan
};

}  // namespace

Result<protocol::EvaluationResult> run_evaluation(
    engine::Engine& engine, const engine::LoadedWeights& weights, const ModelText& model,
    const FileSystem& files, const KeptPictures& kept, const protocol::Evaluate& asked,
    const KnownAnswers& known, const EvaluationEvents& events, std::stop_token stop) {
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
  return Evaluation(engine, weights, model, files, kept, asked, known, events, std::move(stop),
                    processor)
      .run();
}

}  // namespace evalcar::service
