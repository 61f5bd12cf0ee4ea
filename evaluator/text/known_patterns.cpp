// Scanners for the patterns of KnownPattern. Each alternative of the pattern is tried in its order
// at the current place; what a backtracking engine would give back is computed directly.
#include <optional>

#include "evaluator/text/pre_tokenizer.h"
#include "evaluator/text/unicode.h"

namespace evalcar::text {
namespace {

constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

bool is_newline(char32_t c) { return c == '\r' || c == '\n'; }
bool is_other(char32_t c) { return !is_space(c) && !is_letter(c) && !is_number(c); }

// The end of the run of characters that satisfy `inside`, from `at` on; at most `limit` of them.
template <typename Predicate>
std::size_t run_end(std::string_view text, std::size_t at, Predicate inside,
                    std::size_t limit = std::string_view::npos) {
  for (; at < text.size() && limit > 0; --limit) {
    const Decoded next = decode_utf8(text, at);
    if (!inside(next.code_point)) break;
    at += next.length_bytes;
  }
  return at;
}

char32_t at_or_nothing(std::string_view text, std::size_t at) {
  return at < text.size() ? decode_utf8(text, at).code_point : 0x110000;
}

// 's 't 're 've 'm 'll 'd: the end of the one at `at`, else nothing. Without regard to case, U+017F
// (long s) is an s too.
std::optional<std::size_t> contraction_end(std::string_view text, std::size_t at, bool any_case) {
  if (text[at] != '\'' || at + 1 >= text.size()) return std::nullopt;
  const auto lower = [&](std::size_t i) {
    const char c = i < text.size() ? text[i] : '\0';
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  const char first = lower(at + 1), second = lower(at + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
  if ((first == 'r' || first == 'v') && second == 'e') return at + 3;
  if (first == 'l' && second == 'l') return at + 3;
  if (any_case && text.substr(at + 1, 2) == "\xC5\xBF") return at + 3;
  return std::nullopt;
}

// \s+(?!\S)|\s+ from `begin`, whose run of blanks ends at `end`: all of it before the text's end,
// else all but the last one, if there are two.
std::size_t blanks_end(std::string_view text, std::size_t begin, std::size_t end) {
  if (end == text.size()) return end;
  std::size_t last = end - 1;
  while ((static_cast<unsigned char>(text[last]) & 0xC0U) == 0x80U) --last;
  return last > begin ? last : end;
}

std::size_t scan_gpt2(std::string_view text, std::size_t begin) {
  if (const auto end = contraction_end(text, begin, false)) return *end;
  const std::size_t at = text[begin] == ' ' ? begin + 1 : begin;
  const char32_t c = at_or_nothing(text, at);
  if (c <= 0x10FFFF) {
    if (is_letter(c)) return run_end(text, at, is_letter);
    if (is_number(c)) return run_end(text, at, is_number);
    if (!is_space(c)) return run_end(text, at, is_other);
  }
  return blanks_end(text, begin, run_end(text, begin, is_space));
}

std::size_t scan_qwen2(std::string_view text, std::size_t begin, std::size_t digits) {
  if (const auto end = contraction_end(text, begin, true)) return *end;
  const Decoded first = decode_utf8(text, begin);
  const char32_t c = first.code_point;
  if (is_letter(c)) return run_end(text, begin, is_letter);
  if (is_number(c)) return run_end(text, begin, is_number, digits);
  const std::size_t second = begin + first.length_bytes;
  if (!is_newline(c) && is_letter(at_or_nothing(text, second)))
    return run_end(text, second, is_letter);
  const std::size_t at = c == ' ' ? second : begin;
  if (const char32_t other = at_or_nothing(text, at); other <= 0x10FFFF && is_other(other))
    return run_end(text, run_end(text, at, is_other), is_newline);
  const std::size_t end = run_end(text, begin, is_space);
  const std::size_t newline = text.substr(begin, end - begin).find_last_of("\r\n");
  if (newline != std::string_view::npos) return begin + newline + 1;
  return blanks_end(text, begin, end);
}

}  // namespace

std::string_view known_pattern_text(KnownPattern pattern) {
  switch (pattern) {
    case KnownPattern::kGpt2:
      return kGpt2Pattern;
    case KnownPattern::kQwen2:
      return kQwen2Pattern;
    case KnownPattern::kLlama3:
      return kLlama3Pattern;
  }
  return {};
}

std::size_t scan_piece(KnownPattern pattern, std::string_view text, std::size_t begin) {
  switch (pattern) {
    case KnownPattern::kGpt2:
      return scan_gpt2(text, begin);
    case KnownPattern::kQwen2:
      return scan_qwen2(text, begin, 1);
    case KnownPattern::kLlama3:
      return scan_qwen2(text, begin, 3);
  }
  return text.size();
}

}  // namespace evalcar::text
