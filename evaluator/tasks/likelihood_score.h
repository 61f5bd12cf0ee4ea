// From likelihoods to a task's result, for the kinds that score given tokens.
#pragma once

#include <span>
#include <string>

#include "evaluator/tasks/definition.h"
#include "evaluator/tasks/task.h"

namespace evalcar::tasks {

/// As score(), where each Response::text is encode_likelihoods(): of multiple_choice one for each
/// choice, of the others of all spans or windows of the document. kCorruption where a text is none.
Result<Scores> score_likelihoods(const Definition& definition, const Task& task,
                                 std::span<const Response> responses,
                                 std::span<const std::string> inputs, const ScoreOptions& options);

}  // namespace evalcar::tasks
