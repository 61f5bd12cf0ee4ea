// What the engine answers becomes what a task's scorer reads.
#pragma once

#include <cstddef>
#include <span>

#include "evaluator/engine/engine.h"
#include "evaluator/service/task_job.h"
#include "evaluator/text/tokenizer.h"
#include "store/base/result.h"

namespace evalcar::service {

/// Which request of a job an answer is for.
struct AnswerPlace {
  std::size_t document = 0;  ///< index into TaskJob::documents
  std::size_t part = 0;      ///< which of the document's requests
};

/// Takes an answer, or the failure of its request, into the job. True: the document's response is
/// whole, and can be told. A job that has failed takes no more.
bool take_answer(TaskJob& job, AnswerPlace place, const Result<engine::Answer>& answer,
                 const text::Tokenizer& tokenizer);

/// Whether an answer that an earlier attempt stored is one to these requests of a document, in
/// their order. Of a kind that scores given tokens: likelihoods of as many spans and continuations,
/// each of as many tokens. What was generated is a text of any form. `response`: as it was stored.
bool answers_requests(const tasks::Response& response, std::span<const engine::Request> requests);

}  // namespace evalcar::service
