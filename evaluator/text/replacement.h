// What tokenizer.json's normaliser and decoder "Replace" do: every match of a pattern becomes one
// text.
#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "evaluator/text/regex.h"
#include "store/base/result.h"

namespace evalcar::text {

/// Several steps together may make a text so many times as long: more is refused where a file is
/// read, as a few bytes of it could ask for all memory.
inline constexpr std::size_t kMostGrowth = 16;

/// Immutable after parse; thread-safe.
class Replacement {
 public:
  /// From {"pattern": {"String" or "Regex": …}, "content": …}. kCorruption where one of them is
  /// missing, kUnsupported for a pattern that may match no character, and for one that PCRE2 would
  /// read differently.
  static Result<Replacement> parse(const nlohmann::json& description);

  /// `text` (valid UTF-8) with its matches replaced, from left to right. Errors as
  /// Regex::for_each_match().
  Result<std::string> apply(std::string_view text) const;
  /// As apply(), of a literal pattern, which cannot fail.
  std::string apply_literal(std::string_view text) const;
  bool is_literal() const { return std::holds_alternative<std::string>(pattern_); }

  /// How many times as long a text may become, at most; at least 1.
  std::size_t growth() const;

 private:
  using Pattern = std::variant<std::string, Regex>;
  Replacement(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  Pattern pattern_;
  std::string content_;
};

}  // namespace evalcar::text
