#include "evaluator/service/preparation.h"

#include <optional>
#include <span>
#include <string>
#include <utility>

#include "evaluator/service/document_requests.h"
#include "store/base/hash.h"

namespace evalcar::service {
namespace {

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

std::string picture_name(const TaskJob& job, std::int64_t doc_id, std::size_t position) {
  return job.name + ": document " + std::to_string(doc_id) + ", picture " +
         std::to_string(position + 1);
}

TaskFailure nothing_left(const TaskJob& job) {
  const auto most = job.task->file().request.max_length;
  return failed_by_data(
      make_error(ErrorCode::kCorruption,
                 job.name + ": of none of its " + std::to_string(job.documents.size()) +
                     " documents a token of the assistant's is left before [request] max_length" +
                     (most.has_value() ? " = " + std::to_string(*most) : std::string()) +
                     "; expected a length that holds answers"));
}

class Preparation {
 public:
  Preparation(const PreparationTools& tools, std::vector<TaskJob>& jobs, PictureSource& pictures,
              Plan& plan)
      : tools_(tools),
        encoder_{tools.model, tools.wrapper, tools.weights.image_token_id,
                 tools.model.max_positions},
        jobs_(jobs),
        pictures_(pictures),
        plan_(plan) {}

  Status run() {
    for (const TaskJob& job : jobs_) {
      if (!job.measured) total_ += static_cast<std::int64_t>(job.documents.size());
    }
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      TaskJob& job = jobs_[j];
      if (!job.wanted()) {
        job.recalled.reset();
        continue;
      }
      EVALCAR_RETURN_IF_ERROR(job.recalled.has_value() ? take_recalled(j) : prepare(j));
      if (job.wanted() && (plan_.targets.empty() || plan_.targets.back().job != j))
        job.failure = nothing_left(job);
    }
    return {};
  }

 private:
  /// Between two documents.
  Status step(const TaskJob& job) {
    if (tools_.stop.stop_requested()) return cancelled();
    tools_.events.advanced();
    if (done_ % 16 == 0) tools_.events.progress("preparing", job.name, done_, total_);
    ++done_;
    return {};
  }

  /// What an earlier evaluation made.
  Status take_recalled(std::size_t j) {
    TaskJob& job = jobs_[j];
    PreparedTask task = std::move(*std::exchange(job.recalled, std::nullopt));
    std::vector<std::size_t> places;
    for (const PreparedPicture& picture : task.pictures) {
      places.push_back(pictures_.add_known(*job.task, picture, tools_.weights.architecture,
                                           picture_name(job, picture.doc_id, picture.position)));
    }
    for (std::size_t d = 0; d < task.documents.size(); ++d) {
      EVALCAR_RETURN_IF_ERROR(step(job));
      PreparedDocument document = std::move(task.documents[d]);
      for (std::size_t& picture : document.pictures) picture = places[picture];
      EVALCAR_ASSIGN_OR_RETURN(document.json, job.task->document_json(document.doc_id));
      take(j, d, std::move(document));
    }
    return {};
  }

  Status prepare(std::size_t j) {
    TaskJob& job = jobs_[j];
    if (job.shots > 0) job.failure = draw_examples(job);
    if (tools_.stop.stop_requested()) return cancelled();
    std::optional<PreparedTaskPacker> packer;
    if (tools_.cache != nullptr && job.key.has_value()) packer.emplace();
    for (std::size_t d = 0; d < job.documents.size() && job.wanted(); ++d) {
      EVALCAR_RETURN_IF_ERROR(step(job));
      PreparedDocument document;
      std::vector<PreparedPicture> shown;
      job.failure = make(job, d, document, shown);
      if (job.failure.has_value()) {
        job.failure->error = of_document(std::move(job.failure->error), job, d);
        return {};
      }
      if (packer.has_value()) packer->add(document, shown);
      if (packer.has_value() && packer->size() > tools_.cache->most_bytes()) packer.reset();
      take(j, d, std::move(document));
    }
    if (packer.has_value() && job.wanted()) {
      tools_.cache->keep(*job.key,
                         {.size = job.task->size(),
                          .data_fingerprint = job.task->data_fingerprint(),
                          .shots = job.shots},
                         std::move(*packer), *job.read, tools_.stop);
    }
    return {};
  }

  /// All at once: which examples a prompt has depends on the prompts before it.
  std::optional<TaskFailure> draw_examples(TaskJob& job) const {
    // Only its chat wrappers draw again, and none of them scores given tokens.
    const bool as_logged =
        tools_.settings.compat == "strict" || job.kind() != tasks::RequestKind::kGenerate;
    auto texts =
        job.task->few_shot(job.documents, tools_.weights.architecture,
                           {.shots = job.shots,
                            .seed = protocol::fewshot_seed_of(tools_.settings.seed),
                            .turn = as_logged ? tasks::FewShotTurn::kLogged : tools_.wrapper.turn,
                            .advanced = tools_.events.advanced,
                            .stop = tools_.stop});
    if (!texts.has_value()) return failed_by_data(std::move(texts).error());
    job.inputs = std::move(texts->inputs);
    job.prompts = std::move(texts->prompts);
    return std::nullopt;
  }

  /// `shown`: the pictures of its prompt.
  std::optional<TaskFailure> make(TaskJob& job, std::size_t d, PreparedDocument& document,
                                  std::vector<PreparedPicture>& shown) {
    document.doc_id = job.documents[d];
    auto prompt = job.task->prompt(document.doc_id, tools_.weights.architecture);
    if (!prompt.has_value()) return failed_by_data(std::move(prompt).error());
    document.input = job.shots == 0 ? prompt->input : job.inputs[d];
    if (job.shots > 0) {  // a task without pictures: its message is one text
      prompt->messages.back().content.back().text = job.prompts[d];
      prompt->input = job.prompts[d];
    }
    if (!prompt->images.empty() && !tools_.weights.reads_pictures()) return shows_pictures();
    if (Status added = add_pictures(job, *prompt, document, shown); !added.has_value())
      return failed_by_data(std::move(added).error());
    std::vector<std::int64_t> placeholders;
    for (const PreparedPicture& picture : shown) placeholders.push_back(picture.size.tokens);
    auto made = encoder_.requests_of(job.task->file().request, *prompt, placeholders);
    if (!made.has_value()) {
      // What is scored is the document itself; a prompt is the task's.
      const bool of_document = made.error().code == ErrorCode::kCorruption &&
                               job.kind() != tasks::RequestKind::kGenerate;
      return of_document ? failed_by_data(std::move(made).error())
                         : failed(std::move(made).error());
    }
    document.requests = std::move(made->requests);
    document.cut = made->cut;
    auto json = job.task->document_json(document.doc_id);
    if (!json.has_value()) return failed_by_data(std::move(json).error());
    document.json = std::move(*json);
    return std::nullopt;
  }

  /// The task and the model do not go together: every checkpoint fares alike.
  TaskFailure shows_pictures() const {
    return failed(make_error(ErrorCode::kInvalidArgument,
                             "its prompt shows a picture, and a " + tools_.weights.architecture +
                                 " model reads text alone: take the task out of evaluate.tasks"));
  }

  Status add_pictures(const TaskJob& job, const tasks::Prompt& prompt, PreparedDocument& document,
                      std::vector<PreparedPicture>& shown) {
    for (std::size_t i = 0; i < prompt.images.size(); ++i) {
      EVALCAR_ASSIGN_OR_RETURN(
          const std::size_t picture,
          pictures_.add(*job.task, document.doc_id, i, tools_.weights.architecture,
                        prompt.images[i], picture_name(job, document.doc_id, i)));
      document.pictures.push_back(picture);
      shown.push_back({.doc_id = document.doc_id,
                       .position = i,
                       .digest = pictures_.digest_of(picture),
                       .size = pictures_.size_of(picture),
                       .is_cut_off = pictures_.is_cut_off(picture)});
    }
    return {};
  }

  /// Puts it into its job and into the plan. Its pictures are places in `pictures_`.
  void take(std::size_t j, std::size_t d, PreparedDocument document) {
    TaskJob& job = jobs_[j];
    std::vector<Sha256Digest> digests;
    for (const std::size_t picture : document.pictures)
      digests.push_back(pictures_.digest_of(picture));
    job.inputs[d] = std::move(document.input);
    job.units[d] = unit_of(job.name, document.doc_id, digests);
    job.pictures[d] = document.pictures;
    job.cut += document.cut ? 1 : 0;
    job.likelihoods[d].resize(document.requests.size());
    if (document.requests.empty()) {  // it is answered: nothing of it is asked
      job.responses[d] = {.doc_id = document.doc_id,
                          .text = tasks::encode_likelihoods({}),
                          .output_tokens = 0,
                          .cut_off = false};
      job.gathered->add(document.doc_id, document.json, engine::Request{}, digests);
    }
    for (std::size_t part = 0; part < document.requests.size(); ++part) {
      engine::Request& request = document.requests[part];
      request.images = document.pictures;
      request.generation = job.generation;
      request.stream = stream_of(job.name, document.doc_id);
      job.gathered->add(document.doc_id, document.json, request, digests);
      plan_.requests.push_back(std::move(request));
      plan_.targets.push_back({.job = j, .document = d, .part = part});
    }
  }

  const PreparationTools& tools_;
  const RequestEncoder encoder_;
  std::vector<TaskJob>& jobs_;
  PictureSource& pictures_;
  Plan& plan_;
  std::int64_t done_ = 0;   // documents
  std::int64_t total_ = 0;  // of all jobs
};

}  // namespace

Status prepare_all(const PreparationTools& tools, std::vector<TaskJob>& jobs,
                   PictureSource& pictures, Plan& plan) {
  return Preparation(tools, jobs, pictures, plan).run();
}

}  // namespace evalcar::service
