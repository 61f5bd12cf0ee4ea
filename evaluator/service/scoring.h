// From the answers of all tasks to the result of an evaluation.
#pragma once

#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "evaluator/engine/engine.h"
#include "evaluator/service/evaluation.h"
#include "evaluator/service/model_text.h"
#include "evaluator/service/picture_source.h"
#include "evaluator/service/task_job.h"
#include "evaluator/tasks/task.h"
#include "store/base/result.h"
#include "store/protocol/messages.h"

namespace evalcar::service {

/// What scores follow from beside the answers. What it refers to outlives it.
struct Scoring {
  const protocol::EvaluationSettings& settings;
  const engine::LoadedWeights& weights;
  const ModelText& model;
  const EvaluationEvents& events;
  std::stop_token stop;
  bool narrowed = false;  ///< ScoreOptions::narrowed

  /// How these responses of a job are scored.
  tasks::ScoreOptions options(const TaskJob& job,
                              std::span<const tasks::Response* const> responses) const;

  /// Scores every job that is wanted, in lmms-eval's order, tells each line by `events.scored` with
  /// the names of the document's small pictures, and gives the results in the order in which the
  /// tasks were named. A job that cannot be scored has its failure there. kCancelled soon after
  /// `stop`; kInvalidArgument without any job.
  Result<protocol::EvaluationResult> score_all(std::vector<TaskJob>& jobs,
                                               const PictureSource& pictures,
                                               const std::string& attn_implementation) const;
};

}  // namespace evalcar::service
