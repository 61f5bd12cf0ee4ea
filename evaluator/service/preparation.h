// From opened tasks to all that is asked of the engine: prompts, tokens, pictures' sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <vector>

#include "evaluator/engine/engine.h"
#include "evaluator/service/evaluation.h"
#include "evaluator/service/model_text.h"
#include "evaluator/service/picture_source.h"
#include "evaluator/service/preparation_cache.h"
#include "evaluator/service/task_job.h"
#include "evaluator/service/wrapper.h"
#include "store/base/result.h"
#include "store/protocol/messages.h"

namespace evalcar::service {

/// Which document a request of the engine answers.
struct Target {
  std::size_t job = 0;
  std::size_t document = 0;    // index into TaskJob::documents
  std::size_t part = 0;        // which of the document's requests
  std::size_t stage = 0;       // after which of Evaluate::interim_at it is answered
  std::uint64_t question = 0;  // of what is generated: question_of()
};

struct Plan {
  std::vector<engine::Request> requests;
  std::vector<Target> targets;
};

/// What tasks are prepared for, and with. What it refers to outlives it.
struct PreparationTools {
  const engine::LoadedWeights& weights;
  const ModelText& model;
  const Wrapper& wrapper;
  const protocol::EvaluationSettings& settings;
  const EvaluationEvents& events;
  PreparationCache* cache = nullptr;  ///< what is prepared here is kept there; may be nullptr
  std::stop_token stop;
};

/// Prepares each job that is wanted, document by document, and gathers its fingerprint; what was
/// recalled is taken as it is. A job that cannot be prepared has its failure. kCancelled soon after
/// `stop`.
Status prepare_all(const PreparationTools& tools, std::vector<TaskJob>& jobs,
                   PictureSource& pictures, Plan& plan);

}  // namespace evalcar::service
