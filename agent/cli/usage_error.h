// Errors of the words on the command line.
#pragma once

#include <string>
#include <utility>

#include "store/base/result.h"

namespace evalcar::cli {

/// Says `message`; ends the command with the code of a wrong usage.
inline Error usage_error(std::string message) {
  return make_error(ErrorCode::kInvalidArgument, std::move(message));
}

}  // namespace evalcar::cli
