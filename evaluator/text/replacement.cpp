#include "evaluator/text/replacement.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "evaluator/text/json_fields.h"

namespace evalcar::text {
namespace {

constexpr std::size_t kMaxContentBytes = 1024;

}  // namespace

Result<Replacement> Replacement::parse(const nlohmann::json& description) {
  const auto pattern = description.find("pattern");
  auto content = string_field(description, "content");
  if (pattern == description.end() || !content)
    return make_error(ErrorCode::kCorruption, "Replace without \"pattern\" or \"content\"");
  if (content->size() > kMaxContentBytes)
    return make_error(ErrorCode::kCorruption,
                      "Replace: a content of " + std::to_string(content->size()) + " bytes");
  auto literal = string_field(*pattern, "String");
  const auto regex = string_field(*pattern, "Regex");
  if (!literal && !regex)
    return make_error(ErrorCode::kCorruption, "Replace's pattern is neither Regex nor String");
  if (literal ? literal->empty() : regex->empty())
    return make_error(ErrorCode::kUnsupported, "Replace of an empty pattern is not supported");
  if (literal) return Replacement(std::move(*literal), std::move(*content));
  auto compiled = Regex::compile(*regex);
  if (!compiled) return with_context(std::move(compiled).error(), "Replace");
  return Replacement(std::move(compiled).value(), std::move(*content));
}

std::string Replacement::apply_literal(std::string_view text) const {
  const std::string& literal = std::get<std::string>(pattern_);
  std::string out;
  std::size_t covered = 0;
  for (std::size_t at = text.find(literal); at != std::string_view::npos;
       at = text.find(literal, covered)) {
    out.append(text.substr(covered, at - covered)).append(content_);
    covered = at + literal.size();
  }
  return out.append(text.substr(covered));
}

Result<std::string> Replacement::apply(std::string_view text, std::size_t most_bytes) const {
  std::size_t matches = 0, matched_bytes = 0;
  std::string out;
  std::size_t covered = 0;
  const auto too_long = [&](std::size_t bytes) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a text becomes " + std::to_string(bytes) + " bytes by Replace; at most " +
                          std::to_string(most_bytes) + " are encoded at once");
  };
  const auto is_too_long = [&] {
    return text.size() - matched_bytes + matches * content_.size() > most_bytes;
  };
  if (is_literal()) {
    const std::string& literal = std::get<std::string>(pattern_);
    for (std::size_t at = text.find(literal); at != std::string_view::npos;
         at = text.find(literal, at + literal.size())) {
      ++matches;
    }
    matched_bytes = matches * literal.size();
    if (is_too_long()) return too_long(text.size() - matched_bytes + matches * content_.size());
    return apply_literal(text);
  }
  EVALCAR_RETURN_IF_ERROR(
      std::get<Regex>(pattern_).for_each_match(text, [&](std::size_t begin, std::size_t end) {
        ++matches;
        matched_bytes += end - begin;
        if (is_too_long()) return;
        out.append(text.substr(covered, begin - covered)).append(content_);
        covered = end;
      }));
  if (is_too_long()) return too_long(text.size() - matched_bytes + matches * content_.size());
  return out.append(text.substr(covered));
}

}  // namespace evalcar::text
