#include "store/base/result.h"

#include <cerrno>
#include <system_error>

#include "store/base/text.h"

namespace evalcar {

std::string_view error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kCorruption:
      return "corruption";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "internal";
}

Error make_error(ErrorCode code, std::string message) {
  const bool retryable = code == ErrorCode::kIo || code == ErrorCode::kUnavailable;
  return Error{code, printable(message), retryable};
}

Error errno_error(std::string_view what, std::string_view path, int errno_value) {
  const bool gone = errno_value == ENOENT || errno_value == ENOTDIR || errno_value == ESTALE;
  std::string message;
  message.append(what).append(": ").append(path).append(": ");
  message.append(std::generic_category().message(errno_value));  // unlike strerror, thread-safe
  if (errno_value == EACCES) message.append("; run evalcar as the user that trains");
  return make_error(gone ? ErrorCode::kNotFound : ErrorCode::kIo, std::move(message));
}

Error with_context(Error error, std::string_view prefix) {
  error.message.insert(0, ": ").insert(0, printable(prefix));
  return error;
}

}  // namespace evalcar
