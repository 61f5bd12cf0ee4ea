#include "evaluator/text/pre_tokenizer.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "evaluator/text/json_fields.h"
#include "evaluator/text/tokenizer_parts.h"
#include "evaluator/text/unicode.h"

namespace evalcar::text {
namespace {

struct Span {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool match = false;
};

// Matches and what lies between them, in order, covering the whole piece.
Result<std::vector<Span>> spans_of(const Regex& regex, std::string_view piece) {
  std::vector<Span> spans;
  std::size_t covered = 0;
  EVALCAR_RETURN_IF_ERROR(regex.for_each_match(piece, [&](std::size_t begin, std::size_t end) {
    if (covered != begin) spans.push_back({covered, begin, false});
    spans.push_back({begin, end, true});
    covered = end;
  }));
  if (covered != piece.size()) spans.push_back({covered, piece.size(), false});
  return spans;
}

std::string with_visible_spaces(std::string_view piece, const Metaspace& metaspace, bool is_begin) {
  std::string out;
  for (const char c : piece) {
    if (c == ' ') {
      out += metaspace.replacement;
    } else {
      out += c;
    }
  }
  using Prepend = Metaspace::Prepend;
  const bool prepends =
      metaspace.prepend == Prepend::kAlways || (metaspace.prepend == Prepend::kFirst && is_begin);
  if (prepends && !out.starts_with(metaspace.replacement)) out.insert(0, metaspace.replacement);
  return out;
}

}  // namespace

Result<PreTokenizer> PreTokenizer::parse(const nlohmann::json& description) {
  PreTokenizer result;
  if (description.is_null()) return result;
  EVALCAR_ASSIGN_OR_RETURN(const auto steps,
                           steps_of(description, "pre_tokenizer", "pretokenizers"));
  for (const nlohmann::json* const step : steps) EVALCAR_RETURN_IF_ERROR(result.add(*step));
  return result;
}

Status PreTokenizer::add(const nlohmann::json& description) {
  const std::string type = string_field(description, "type").value_or("");
  if (byte_level_)
    return make_error(ErrorCode::kUnsupported, "pre_tokenizer " + type + " after ByteLevel");
  if (type == "Split") return add_split(description);
  if (type == "Digits") {
    steps_.emplace_back(Digits{bool_field(description, "individual_digits").value_or(false)});
    return {};
  }
  if (type == "ByteLevel") {
    byte_level_ = true;
    if (bool_field(description, "add_prefix_space").value_or(true))
      steps_.emplace_back(PrefixSpace{});
    if (bool_field(description, "use_regex").value_or(true))
      steps_.emplace_back(Scan{KnownPattern::kGpt2});
    return {};
  }
  if (type == "Metaspace") return add_metaspace(description);
  return make_error(
      ErrorCode::kUnsupported,
      "pre_tokenizer type \"" + type +
          "\" is not supported (Sequence, Split, Digits, ByteLevel and Metaspace are)");
}

Status PreTokenizer::add_metaspace(const nlohmann::json& description) {
  auto metaspace = parse_metaspace(description);
  if (!metaspace) return with_context(std::move(metaspace).error(), "pre_tokenizer");
  // Each makes pieces longer, so that with splits between them a text would double and double.
  const bool is_second = std::ranges::any_of(
      steps_, [](const Step& step) { return std::holds_alternative<Metaspace>(step); });
  if (is_second)
    return make_error(ErrorCode::kUnsupported, "pre_tokenizer: two Metaspace are not supported");
  steps_.emplace_back(*metaspace);
  if (!metaspace->splits) return {};
  EVALCAR_ASSIGN_OR_RETURN(Regex space, Regex::compile_literal(metaspace->replacement));
  steps_.emplace_back(Cut{std::move(space), Behavior::kMergedWithNext, false});
  return {};
}

bool PreTokenizer::asks_for_begin() const {
  return std::ranges::any_of(steps_, [](const Step& step) {
    const auto* metaspace = std::get_if<Metaspace>(&step);
    return metaspace != nullptr && metaspace->prepend == Metaspace::Prepend::kFirst;
  });
}

Status PreTokenizer::add_split(const nlohmann::json& description) {
  constexpr std::array<std::pair<std::string_view, Behavior>, 5> kBehaviors = {
      {{"Removed", Behavior::kRemoved},
       {"Isolated", Behavior::kIsolated},
       {"MergedWithPrevious", Behavior::kMergedWithPrevious},
       {"MergedWithNext", Behavior::kMergedWithNext},
       {"Contiguous", Behavior::kContiguous}}};
  const std::string name = string_field(description, "behavior").value_or("");
  const auto* behavior = std::find_if(kBehaviors.begin(), kBehaviors.end(),
                                      [&](const auto& item) { return item.first == name; });
  if (behavior == kBehaviors.end())
    return make_error(ErrorCode::kUnsupported, "Split behavior \"" + name + "\" is not known");
  const bool invert = bool_field(description, "invert").value_or(false);

  EVALCAR_ASSIGN_OR_RETURN(const PatternText pattern, pattern_of(description, "Split"));
  for (const auto known : {KnownPattern::kGpt2, KnownPattern::kQwen2, KnownPattern::kLlama3}) {
    // Every character is in a match, so inverted and removed leave nothing of a match: only the
    // common form has the scanner.
    if (pattern.is_regex && pattern.text == known_pattern_text(known) &&
        behavior->second == Behavior::kIsolated) {
      steps_.emplace_back(Scan{known});
      return {};
    }
  }
  auto compiled =
      pattern.is_regex ? Regex::compile(pattern.text) : Regex::compile_literal(pattern.text);
  if (!compiled) return with_context(std::move(compiled).error(), "pre_tokenizer Split");
  steps_.emplace_back(Cut{std::move(compiled).value(), behavior->second, invert});
  return {};
}

Status PreTokenizer::apply_cut(const Cut& cut, std::string_view piece, bool& is_begin,
                               std::vector<std::string>& out) {
  EVALCAR_ASSIGN_OR_RETURN(std::vector<Span> spans, spans_of(cut.regex, piece));
  if (cut.invert)
    for (Span& span : spans) span.match = !span.match;

  std::vector<Span> kept;
  bool previous = false;
  const auto join_forward = [&](bool joins, const Span& span) {
    if (joins && !kept.empty()) {
      kept.back().end = span.end;
    } else {
      kept.push_back(span);
    }
    previous = span.match;
  };
  switch (cut.behavior) {
    case Behavior::kRemoved:
      std::copy_if(spans.begin(), spans.end(), std::back_inserter(kept),
                   [](const Span& span) { return !span.match; });
      break;
    case Behavior::kIsolated:
      kept = spans;
      break;
    case Behavior::kMergedWithPrevious:
      for (const Span& span : spans) join_forward(span.match && !previous, span);
      break;
    case Behavior::kContiguous:
      for (const Span& span : spans) join_forward(span.match == previous, span);
      break;
    case Behavior::kMergedWithNext:
      for (auto it = spans.rbegin(); it != spans.rend(); ++it) {
        if (it->match && !previous && !kept.empty()) {
          kept.back().begin = it->begin;
        } else {
          kept.push_back(*it);
        }
        previous = it->match;
      }
      std::reverse(kept.begin(), kept.end());
      break;
  }
  std::erase_if(kept, [](const Span& span) { return span.end == span.begin; });
  is_begin = is_begin && !kept.empty() && kept.front().begin == 0;
  for (const Span& span : kept) out.emplace_back(piece.substr(span.begin, span.end - span.begin));
  return {};
}

Status PreTokenizer::apply(const Step& step, std::string piece, bool& is_begin,
                           std::vector<std::string>& out) {
  if (const auto* scan = std::get_if<Scan>(&step)) {
    for (std::size_t at = 0; at < piece.size();) {
      const std::size_t end = scan_piece(scan->pattern, piece, at);
      out.push_back(piece.substr(at, end - at));
      at = end;
    }
  } else if (const auto* cut = std::get_if<Cut>(&step)) {
    return apply_cut(*cut, piece, is_begin, out);
  } else if (const auto* digits = std::get_if<Digits>(&step)) {
    bool joins = false;  // with the piece before: both numbers, or neither
    for (std::size_t at = 0; at < piece.size();) {
      const Decoded next = decode_utf8(piece, at);
      const bool number = is_number(next.code_point);
      const bool same =
          !out.empty() && joins == number && at > 0 && !(number && digits->individual);
      if (same) {
        out.back().append(piece, at, next.length_bytes);
      } else {
        out.push_back(piece.substr(at, next.length_bytes));
      }
      joins = number;
      at += next.length_bytes;
    }
  } else if (const auto* metaspace = std::get_if<Metaspace>(&step)) {
    out.push_back(with_visible_spaces(piece, *metaspace, is_begin));
  } else {
    if (!piece.starts_with(' ')) piece.insert(piece.begin(), ' ');
    out.push_back(std::move(piece));
  }
  return {};
}

Result<std::vector<std::string>> PreTokenizer::split(std::string_view text, bool is_begin) const {
  std::vector<std::string> pieces;
  if (text.empty()) return pieces;
  pieces.emplace_back(text);
  for (const Step& step : steps_) {
    std::vector<std::string> next;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      bool is_later = false;
      EVALCAR_RETURN_IF_ERROR(
          apply(step, std::move(pieces[i]), i == 0 ? is_begin : is_later, next));
    }
    pieces = std::move(next);
  }
  return pieces;
}

}  // namespace evalcar::text
