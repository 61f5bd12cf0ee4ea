// Errors as values. A function that can fail returns Result<T> (or Status); nobody can ignore it.
//
// The member names are those of std::expected, which g++ 12 does not have in C++20: a later change
// is one alias.
#pragma once

#include <cassert>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace evalcar {

/// What went wrong, in the few kinds on which a daemon decides: retry, quarantine, or stop.
enum class ErrorCode {
  kNotFound,         ///< a file, tensor, task or row that was asked for is not there
  kInvalidArgument,  ///< usage or configuration: the caller (or the user) must change something
  kCorruption,       ///< bytes that break the rules of their format; reading again cannot help
  kIo,               ///< the operating system refused: errno is in the message
  kUnsupported,      ///< well formed, but not a thing that this program knows
  kUnavailable,      ///< not now: busy, incomplete, out of memory; trying later can help
  kCancelled,        ///< stopped on request
  kInternal,         ///< a broken promise of our own code
};

/// The stable lower-case name of a code ("not_found", "corruption", …), used in JSON and in the
/// database.
std::string_view error_code_name(ErrorCode code);

/// An error: its kind, a message that names file, place, seen, expected and hint, and whether a
/// later try can help.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  bool retryable = false;
};

/// Makes an Error whose `retryable` follows from its code (kIo and kUnavailable can be tried
/// again).
Error make_error(ErrorCode code, std::string message);

/// Makes a kIo error (kNotFound for ENOENT/ENOTDIR/ESTALE) of the form "<what>: <path>:
/// <strerror>". Thread-safe.
Error errno_error(std::string_view what, std::string_view path, int errno_value);

/// Either a T or an Error. Check has_value() (or operator bool) before value().
template <typename T>
class [[nodiscard]] Result {
 public:
  using value_type = T;
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit by design
  Result(Error error)
      : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit by design

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }
  T& value() & {
    assert(has_value());
    return std::get<0>(state_);
  }
  const T& value() const& {
    assert(has_value());
    return std::get<0>(state_);
  }
  T&& value() && {
    assert(has_value());
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const& {
    assert(!has_value());
    return std::get<1>(state_);
  }
  Error&& error() && {
    assert(!has_value());
    return std::get<1>(std::move(state_));
  }
  T value_or(T other) const& { return has_value() ? std::get<0>(state_) : std::move(other); }

 private:
  std::variant<T, Error> state_;
};

/// Success, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;
  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}  // NOLINT: implicit by design

  bool has_value() const { return ok_; }
  explicit operator bool() const { return ok_; }
  const Error& error() const& {
    assert(!ok_);
    return error_;
  }
  Error&& error() && {
    assert(!ok_);
    return std::move(error_);
  }

 private:
  Error error_;
  bool ok_ = true;
};

using Status = Result<void>;

/// The same error with "<prefix>: " before its message.
Error with_context(Error error, std::string_view prefix);

}  // namespace evalcar

#define EVALCAR_CONCAT_INNER(a, b) a##b
#define EVALCAR_CONCAT(a, b) EVALCAR_CONCAT_INNER(a, b)

/// Returns the error of a Status or Result expression from the enclosing function.
#define EVALCAR_RETURN_IF_ERROR(expression)                              \
  do {                                                                   \
    if (auto evalcar_status = (expression); !evalcar_status.has_value()) \
      return std::move(evalcar_status).error();                          \
  } while (false)

/// EVALCAR_ASSIGN_OR_RETURN(auto x, f()): x = the value of f(), or returns f()'s error.
#define EVALCAR_ASSIGN_OR_RETURN(declaration, expression)                \
  auto EVALCAR_CONCAT(evalcar_result_, __LINE__) = (expression);         \
  if (!EVALCAR_CONCAT(evalcar_result_, __LINE__).has_value())            \
    return std::move(EVALCAR_CONCAT(evalcar_result_, __LINE__)).error(); \
  declaration = std::move(EVALCAR_CONCAT(evalcar_result_, __LINE__)).value()
