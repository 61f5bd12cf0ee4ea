// What tokenizer.json's normaliser and decoder "Replace" do: every match of a pattern becomes one
// text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>

#include "evaluator/text/regex.h"
#include "store/base/result.h"

namespace evalcar::text {

/// Immutable after parse; thread-safe.
class Replacement {
 public:
  /// From {"pattern": {"String" or "Regex": …}, "content": …}. kCorruption where one of them is
  /// missing, kUnsupported for an empty pattern, and for a pattern that PCRE2 would read
  /// differently.
  static Result<Replacement> parse(const nlohmann::json& description);

  /// `text` (valid UTF-8) with its matches replaced, from left to right. kInvalidArgument where
  /// that makes more than `most_bytes`, or the pattern takes too many steps.
  Result<std::string> apply(std::string_view text, std::size_t most_bytes) const;

  /// Whether something may vanish.
  bool removes() const { return content_.empty(); }
  bool is_literal() const { return std::holds_alternative<std::string>(pattern_); }
  /// As apply(), of a literal pattern, which cannot fail.
  std::string apply_literal(std::string_view text) const;

 private:
  using Pattern = std::variant<std::string, Regex>;
  Replacement(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  Pattern pattern_;
  std::string content_;
};

}  // namespace evalcar::text
