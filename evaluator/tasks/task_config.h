// A task's entry of "configs" in lmms-eval's results file.
#pragma once

#include "evaluator/tasks/definition.h"
#include "evaluator/tasks/python_json.h"
#include "evaluator/tasks/task.h"

namespace evalcar::tasks {

/// generation_kwargs as lmms-eval resolves them from the task file.
Value generation_kwargs(const GenerationDefaults& defaults);

/// The keys that lmms-eval writes, in its order; where it shows a Python function, the task file is
/// named.
Value task_config(const Definition& definition, const ScoreOptions& options);

}  // namespace evalcar::tasks
