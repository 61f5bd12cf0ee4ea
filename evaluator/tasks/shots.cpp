#include "evaluator/tasks/shots.h"

#include <string>

namespace evalcar::tasks {

Result<std::int64_t> shots_of(const Definition& definition, std::optional<std::int64_t> asked) {
  if (!definition.fewshot) {
    if (asked.value_or(0) == 0) return 0;
    return make_error(ErrorCode::kInvalidArgument,
                      definition.file.name +
                          " has no examples for evaluate.num_fewshot = " + std::to_string(*asked) +
                          ": its task file has no [fewshot] (lmms-eval ends with an error there, "
                          "too); leave it out, or set it to 0");
  }
  const std::int64_t own = definition.fewshot->num.value_or(0);
  if (definition.fewshot->num == 0) return 0;
  return asked.value_or(own);
}

}  // namespace evalcar::tasks
