#include "evaluator/text/token_decoder.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "evaluator/text/byte_letters.h"
#include "evaluator/text/json_fields.h"
#include "evaluator/text/tokenizer_parts.h"
#include "evaluator/text/unicode.h"

namespace evalcar::text {
namespace {

std::string joined(const std::vector<std::string>& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

/// The byte of "<0x0A>"; of "<0x+A>", too, as Rust reads numbers.
std::optional<char> byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  std::string_view digits = token.substr(3, 2);
  if (digits.starts_with('+')) digits.remove_prefix(1);
  unsigned value = 0;
  const char* const end = std::to_address(digits.end());
  const auto read = std::from_chars(std::to_address(digits.begin()), end, value, 16);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return static_cast<char>(value);
}

/// Bytes in a row are one text; where that is no UTF-8, each becomes a U+FFFD.
std::vector<std::string> with_bytes_joined(const std::vector<std::string>& tokens) {
  std::vector<std::string> out;
  std::string bytes;
  const auto settle = [&] {
    if (bytes.empty()) return;
    if (is_valid_utf8(bytes)) {
      out.push_back(bytes);
    } else {
      out.insert(out.end(), bytes.size(), "\xEF\xBF\xBD");
    }
    bytes.clear();
  };
  for (const std::string& token : tokens) {
    if (const auto byte = byte_of(token)) {
      bytes += *byte;
    } else {
      settle();
      out.push_back(token);
    }
  }
  settle();
  return out;
}

std::optional<std::size_t> number_field(const nlohmann::json& description, const char* name) {
  const auto it = description.find(name);
  if (it == description.end() || !it->is_number_unsigned()) return std::nullopt;
  return it->get<std::size_t>();
}

std::string stripped(std::string_view token, std::string_view content, std::size_t start,
                     std::size_t stop) {
  for (; start > 0 && token.starts_with(content); --start) token.remove_prefix(content.size());
  for (; stop > 0 && token.ends_with(content); --stop) token.remove_suffix(content.size());
  return std::string(token);
}

std::string with_spaces(std::string_view token, const Metaspace& metaspace, bool is_first) {
  const bool vanishes = is_first && metaspace.prepend != Metaspace::Prepend::kNever;
  std::string out;
  while (!token.empty()) {
    if (token.starts_with(metaspace.replacement)) {
      if (!vanishes) out += ' ';
      token.remove_prefix(metaspace.replacement.size());
    } else {
      out += token.front();
      token.remove_prefix(1);
    }
  }
  return out;
}

}  // namespace

Result<TokenDecoder> TokenDecoder::parse(const nlohmann::json& description) {
  TokenDecoder result;
  EVALCAR_ASSIGN_OR_RETURN(const auto steps, steps_of(description, "decoder", "decoders"));
  for (const nlohmann::json* const step : steps) EVALCAR_RETURN_IF_ERROR(result.add(*step));
  return result;
}

Status TokenDecoder::add(const nlohmann::json& description) {
  const std::string type = string_field(description, "type").value_or("");
  if (type == "ByteLevel") {
    steps_.emplace_back(ByteLetters{});
  } else if (type == "ByteFallback") {
    steps_.emplace_back(ByteFallback{});
  } else if (type == "Fuse") {
    steps_.emplace_back(Fuse{});
  } else if (type == "Metaspace") {
    auto metaspace = parse_metaspace(description);
    if (!metaspace) return with_context(std::move(metaspace).error(), "decoder");
    steps_.emplace_back(std::move(metaspace).value());
  } else if (type == "Strip") {
    const auto content = string_field(description, "content");
    const auto start = number_field(description, "start"), stop = number_field(description, "stop");
    if (!content || !is_one_character(*content) || !start || !stop)
      return make_error(ErrorCode::kCorruption,
                        "decoder Strip: \"content\" is no single character, or \"start\" or "
                        "\"stop\" no number");
    steps_.emplace_back(Strip{*content, *start, *stop});
  } else if (type == "Replace") {
    auto replacement = Replacement::parse(description);
    if (!replacement) return with_context(std::move(replacement).error(), "decoder");
    if (!replacement->is_literal())
      return make_error(ErrorCode::kUnsupported,
                        "decoder Replace with a regular expression is not supported");
    growth_ *= std::min(replacement->growth(), kMostGrowth + 1);
    if (growth_ > kMostGrowth)
      return make_error(ErrorCode::kUnsupported, "decoder Replace makes a text more than " +
                                                     std::to_string(kMostGrowth) +
                                                     " times as long, which is not supported");
    steps_.emplace_back(std::move(replacement).value());
  } else {
    return make_error(ErrorCode::kUnsupported,
                      "decoder type \"" + type +
                          "\" is not supported (Sequence, ByteLevel, Replace, ByteFallback, Fuse, "
                          "Strip and Metaspace are)");
  }
  return {};
}

bool TokenDecoder::is_byte_level() const {
  return std::ranges::any_of(
      steps_, [](const Step& step) { return std::holds_alternative<ByteLetters>(step); });
}

bool TokenDecoder::is_named_byte(std::string_view token) const {
  return byte_of(token).has_value() && std::ranges::any_of(steps_, [](const Step& step) {
           return std::holds_alternative<ByteFallback>(step);
         });
}

std::vector<std::string> TokenDecoder::apply(const Step& step, std::vector<std::string> tokens) {
  if (std::holds_alternative<ByteLetters>(step)) {
    std::string bytes;
    for (const std::string& token : tokens) bytes += token_bytes(token);
    return {replace_invalid_utf8(bytes)};
  }
  if (std::holds_alternative<ByteFallback>(step)) return with_bytes_joined(tokens);
  if (std::holds_alternative<Fuse>(step)) return {joined(tokens)};
  bool is_first = true;
  for (std::string& token : tokens) {
    if (const auto* strip = std::get_if<Strip>(&step)) {
      token = stripped(token, strip->content, strip->start, strip->stop);
    } else if (const auto* metaspace = std::get_if<Metaspace>(&step)) {
      token = with_spaces(token, *metaspace, is_first);
    } else {
      token = std::get<Replacement>(step).apply_literal(token);
    }
    is_first = false;
  }
  return tokens;
}

std::string TokenDecoder::decode(std::vector<std::string> tokens) const {
  for (const Step& step : steps_) tokens = apply(step, std::move(tokens));
  return joined(tokens);
}

}  // namespace evalcar::text
