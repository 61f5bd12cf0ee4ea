// Where the program evalcar-evaluator is.
#pragma once

#include <string>

#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::supervise {

/// $EVALCAR_EVALUATOR if set; else beside the running program, then ../libexec/evalcar/, then PATH.
/// kNotFound lists the places.
Result<std::string> find_evaluator(const FileSystem& files);

}  // namespace evalcar::supervise
