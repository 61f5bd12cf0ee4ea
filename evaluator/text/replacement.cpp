#include "evaluator/text/replacement.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "evaluator/text/json_fields.h"
#include "evaluator/text/tokenizer_parts.h"

namespace evalcar::text {
namespace {

/// A text put together from what lies between matches, and what takes their place.
class Replaced {
 public:
  Replaced(std::string_view text, std::string_view content) : text_(text), content_(content) {}

  void match(std::size_t begin, std::size_t end) {
    out_.append(text_.substr(covered_, begin - covered_)).append(content_);
    covered_ = end;
  }
  std::string finish() { return std::move(out_.append(text_.substr(covered_))); }

 private:
  std::string_view text_, content_;
  std::string out_;
  std::size_t covered_ = 0;
};

}  // namespace

Result<Replacement> Replacement::parse(const nlohmann::json& description) {
  EVALCAR_ASSIGN_OR_RETURN(PatternText pattern, pattern_of(description, "Replace"));
  auto content = string_field(description, "content");
  if (!content) return make_error(ErrorCode::kCorruption, "Replace without \"content\"");
  const auto matches_nothing = [] {
    return make_error(ErrorCode::kUnsupported,
                      "Replace of a pattern that may match no character is not supported");
  };
  if (!pattern.is_regex) {
    if (pattern.text.empty()) return matches_nothing();
    return Replacement(std::move(pattern.text), std::move(*content));
  }
  auto compiled = Regex::compile(pattern.text);
  if (!compiled) return with_context(std::move(compiled).error(), "Replace");
  if (compiled->may_match_nothing()) return matches_nothing();
  return Replacement(std::move(compiled).value(), std::move(*content));
}

std::size_t Replacement::growth() const {
  const auto* literal = std::get_if<std::string>(&pattern_);
  const std::size_t least = literal == nullptr ? 1 : literal->size();
  return std::max<std::size_t>(1, (content_.size() + least - 1) / least);
}

std::string Replacement::apply_literal(std::string_view text) const {
  const std::string& literal = std::get<std::string>(pattern_);
  Replaced replaced(text, content_);
  for (std::size_t at = text.find(literal); at != std::string_view::npos;
       at = text.find(literal, at + literal.size())) {
    replaced.match(at, at + literal.size());
  }
  return replaced.finish();
}

Result<std::string> Replacement::apply(std::string_view text) const {
  if (is_literal()) return apply_literal(text);
  Replaced replaced(text, content_);
  EVALCAR_RETURN_IF_ERROR(std::get<Regex>(pattern_).for_each_match(
      text, [&](std::size_t begin, std::size_t end) { replaced.match(begin, end); }));
  return replaced.finish();
}

}  // namespace evalcar::text
