// Regular expressions of a tokenizer.json: written for Oniguruma (Ruby's syntax, Unicode 16), run
// by PCRE2.
//
// PCRE2 10.42 knows Unicode 14 and has a wider \s, so \s, \d, \w and \p{…} are written out as
// ranges of code points before compiling. Patterns come from strangers: compiling and matching are
// bounded, and what the two engines read differently is refused.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "store/base/result.h"

namespace evalcar::text {

/// The pattern with its character classes written out for PCRE2. kUnsupported names the first
/// construct that is not known to mean the same in both engines.
Result<std::string> rewrite_pattern(std::string_view pattern);

/// Immutable after compile; thread-safe.
class Regex {
 public:
  static Result<Regex> compile(std::string_view pattern);
  /// The pattern that matches `literal` itself.
  static Result<Regex> compile_literal(std::string_view literal);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  /// Whether a match of no character is possible.
  bool may_match_nothing() const;

  /// Calls `found(begin, end)` for each match from left to right, in bytes; `text` is valid UTF-8.
  /// kInvalidArgument if a match takes more than the step limit, or all of them more than the time
  /// limit.
  Status for_each_match(std::string_view text,
                        const std::function<void(std::size_t, std::size_t)>& found) const;

 private:
  struct Code;
  explicit Regex(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

}  // namespace evalcar::text
