// How many examples stand before a task's question.
#pragma once

#include <cstdint>
#include <optional>

#include "evaluator/tasks/definition.h"
#include "store/base/result.h"

namespace evalcar::tasks {

/// The number of examples: what was asked for, else the task's own. A task that says 0 has none
/// whatever is asked, as in lmms-eval. kInvalidArgument for a task that has no [fewshot]: lmms-eval
/// ends there, too.
Result<std::int64_t> shots_of(const Definition& definition, std::optional<std::int64_t> asked);

}  // namespace evalcar::tasks
