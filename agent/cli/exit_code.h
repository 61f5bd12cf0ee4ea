// Exit codes of every command.
#pragma once

#include "store/base/result.h"

namespace evalcar::cli {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNotReady = 3;
inline constexpr int kExitPartly = 4;

/// What a command that could not do its work ends with.
inline int exit_code_of(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNotFound:
      return kExitUsage;
    default:
      return kExitFailed;
  }
}

}  // namespace evalcar::cli
