// Scores one answer of a task by its document, as the task's process_results does in lmms-eval.
#pragma once

#include <optional>
#include <string>

#include "evaluator/metrics/python_random.h"
#include "evaluator/tasks/definition.h"
#include "evaluator/tasks/python_json.h"

namespace evalcar::tasks {

/// What one answer got.
struct SampleScore {
  Value metrics =
      Value::object();      ///< what lmms-eval logs, in its order: metric -> number or object
  double value = 0;         ///< of the main metric
  bool drawn = false;       ///< lmms-eval draws a letter here: nothing was parsed
  bool unreadable = false;  ///< the answer names none of the options
  std::string group;        ///< of mmmu: the subject; of mme: the category
  std::string picture;      ///< of mme: what the two questions of a pair share
  std::string only_for;     ///< the one metric that it counts for; empty: all of the task
};

/// The answers that `value` (a text, or a list of texts) stands for.
std::vector<std::string> references_of(const Value& value);

/// `answer` is stripped. kCorruption where the document cannot be scored. With `strict`, what
/// lmms-eval would draw at random is a miss (the draw is made all the same, so that `random` is
/// where it would be).
Result<SampleScore> score_answer(const Definition& definition, const Value& document,
                                 const std::string& answer, bool strict,
                                 metrics::PythonRandom& random);

}  // namespace evalcar::tasks
