#include "evaluator/service/answers.h"

#include <algorithm>
#include <string>
#include <vector>

namespace evalcar::service {
namespace {

TaskFailure failure_of(const TaskJob& job, std::size_t document, const Error& error) {
  // A picture that shows only now that it is broken, or a prompt that the model cannot take.
  const bool picture = error.code == ErrorCode::kCorruption;
  const bool not_finite = error.message.starts_with("not finite");
  return {of_document(error, job, document), std::string(picture      ? protocol::kData
                                                         : not_finite ? protocol::kNotFinite
                                                                      : protocol::kRequest)};
}

/// Whether these are the last that the document waited for: then its response is whole.
bool take_scores(TaskJob& job, AnswerPlace place, const std::vector<engine::Score>& scores) {
  auto& parts = job.likelihoods[place.document];
  for (const engine::Score& score : scores)
    parts[place.part].push_back({score.log_likelihood, score.tokens, score.is_greedy});
  std::vector<tasks::Likelihood> all;
  for (const auto& part : parts) {
    if (part.empty()) return false;
    all.insert(all.end(), part.begin(), part.end());
  }
  tasks::Response& response = job.responses[place.document];
  response.text = tasks::encode_likelihoods(all);
  response.output_tokens = tasks::joined(all).tokens;
  response.cut_off = false;
  return true;
}

/// Of each score that the engine gives for the requests.
std::vector<std::int64_t> scored_tokens(std::span<const engine::Request> requests) {
  std::vector<std::int64_t> tokens;
  for (const engine::Request& request : requests) {
    if (!request.scoring.has_value()) continue;
    for (const engine::TokenSpan& span : request.scoring->spans)
      tokens.push_back(span.end - span.begin);
    for (const auto& continuation : request.scoring->continuations)
      tokens.push_back(static_cast<std::int64_t>(continuation.size()));
  }
  return tokens;
}

}  // namespace

bool take_answer(TaskJob& job, AnswerPlace place, const Result<engine::Answer>& answer,
                 const text::Tokenizer& tokenizer) {
  if (job.failure.has_value()) return false;
  if (!answer.has_value()) {
    job.failure = failure_of(job, place.document, answer.error());
    return false;
  }
  tasks::Response& response = job.responses[place.document];
  response.doc_id = job.documents[place.document];
  if (job.kind() != tasks::RequestKind::kGenerate) return take_scores(job, place, answer->scores);
  job.draft_tokens += answer->draft_tokens;
  job.draft_tokens_taken += answer->draft_tokens_taken;
  response.text = tokenizer.decode(answer->tokens, /*skip_special=*/true);
  job.stop_strings.cut(response.text);
  // lmms-eval counts the end token too.
  response.output_tokens =
      static_cast<std::int64_t>(answer->tokens.size()) + (answer->stopped ? 1 : 0);
  response.cut_off =
      !answer->stopped && !answer->ended && response.output_tokens >= job.generation.max_new_tokens;
  return true;
}

bool answers_requests(const tasks::Response& response, std::span<const engine::Request> requests) {
  const std::vector<std::int64_t> asked = scored_tokens(requests);
  if (asked.empty()) return true;
  const auto stored = tasks::decode_likelihoods(response.text);
  if (!stored.has_value()) return false;
  return std::ranges::equal(*stored, asked, {}, &tasks::Likelihood::tokens) &&
         response.output_tokens == tasks::joined(*stored).tokens;
}

}  // namespace evalcar::service
