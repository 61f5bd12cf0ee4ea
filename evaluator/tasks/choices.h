// The choices of a multiple-choice document, and which of them are right.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "evaluator/tasks/definition.h"
#include "evaluator/tasks/python_json.h"
#include "store/base/result.h"

namespace evalcar::tasks {

/// A text, a number, true or false: what can stand as words. Nothing (null), lists and tables would
/// be scored as Python writes them.
bool is_scalar(const Value& value);

/// At least two, none empty. kCorruption names the column where the document holds no such list.
Result<std::vector<std::string>> choices_of(const Definition& definition, const Value& document,
                                            std::string_view model_family);

/// Indices into the choices, as the target names them: "index" a number from 0; "letter" "A", "B",
/// …; "text" one of the choices; by default a number is an index and a text one of the choices. A
/// list names several, each of which is right. kCorruption with the column where it names none of
/// them: lm-eval warns and counts a miss, which is a wrong number.
Result<std::vector<std::size_t>> right_choices(const Definition& definition, const Value& document,
                                               const std::vector<std::string>& choices);

}  // namespace evalcar::tasks
