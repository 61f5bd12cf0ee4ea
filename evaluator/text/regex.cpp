#include "evaluator/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <optional>
#include <utility>

#include "evaluator/text/unicode.h"

namespace evalcar::text {
namespace {

constexpr std::size_t kMaxPatternBytes = 16 * 1024;
constexpr std::uint32_t kMatchLimit = 1'000'000;  // steps of one match
constexpr std::uint32_t kHeapLimitKib = 64 * 1024;
constexpr std::chrono::seconds kTimeLimit{20};  // of all matches in one text

Error unsupported_construct(std::string_view construct, std::string_view pattern) {
  return make_error(ErrorCode::kUnsupported, "regular expression: " + std::string(construct) +
                                                 " is not supported in " + std::string(pattern));
}

std::string class_body(const CodePointRanges& ranges) {
  std::string out;
  std::array<char, 40> text{};
  for (const auto& [first, last] : ranges) {
    if (first == last) {
      std::snprintf(text.data(), text.size(), "\\x{%x}", static_cast<unsigned>(first));
    } else {
      std::snprintf(text.data(), text.size(), "\\x{%x}-\\x{%x}", static_cast<unsigned>(first),
                    static_cast<unsigned>(last));
    }
    out += text.data();
  }
  return out;
}

// \w of Oniguruma: without the joiners, with the superscripts and fractions of Latin-1.
bool is_regex_word(char32_t c) {
  if (c == 0x200C || c == 0x200D) return false;
  return is_word(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || (c >= 0xBC && c <= 0xBE);
}

CodePointRanges word_ranges() {
  CodePointRanges ranges;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (!is_regex_word(c)) continue;
    if (!ranges.empty() && ranges.back().second + 1 == c) {
      ranges.back().second = c;
    } else {
      ranges.emplace_back(c, c);
    }
  }
  return ranges;
}

// Rewrites one pattern from left to right.
class Rewriter {
 public:
  explicit Rewriter(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        EVALCAR_RETURN_IF_ERROR(escape());
      } else if (in_class_) {
        EVALCAR_RETURN_IF_ERROR(class_character(c));
      } else if (c == '[') {
        in_class_ = true;
        out_ += pattern_[at_++];
        if (at_ < pattern_.size() && pattern_[at_] == '^') out_ += pattern_[at_++];
        if (at_ < pattern_.size() && pattern_[at_] == ']')
          return unsupported_construct("']' first in a class", pattern_);
      } else if (c == '(' && pattern_.substr(at_, 2) == "(?") {
        EVALCAR_RETURN_IF_ERROR(group());
      } else if (c == '(' && pattern_.substr(at_, 2) == "(*") {
        return unsupported_construct("(*…)", pattern_);
      } else {
        out_ += c;
        ++at_;
      }
    }
    if (in_class_) return unsupported_construct("a class without its ']'", pattern_);
    return std::move(out_);
  }

 private:
  Status class_character(char c) {
    if (c == '[') return unsupported_construct("'[' inside a class", pattern_);
    if (c == '&' && pattern_.substr(at_, 2) == "&&") return unsupported_construct("&&", pattern_);
    if (c == ']') in_class_ = false;
    out_ += c;
    ++at_;
    return {};
  }

  Status group() {
    for (const std::string_view known : {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
      if (pattern_.substr(at_, known.size()) != known) continue;
      out_ += known;
      at_ += known.size();
      return {};
    }
    return unsupported_construct(pattern_.substr(at_, 4), pattern_);
  }

  void put(const CodePointRanges& ranges, bool negated) {
    const std::string body = class_body(negated ? complement(ranges) : ranges);
    out_ += in_class_ ? body : "[" + body + "]";
  }

  Status escape() {
    if (at_ + 1 >= pattern_.size()) return unsupported_construct("a '\\' at the end", pattern_);
    const char c = pattern_[at_ + 1];
    at_ += 2;
    switch (c) {
      case 's':
      case 'S':
        put(space_ranges(), c == 'S');
        return {};
      case 'd':
      case 'D':
        put(category_ranges("Nd"), c == 'D');
        return {};
      case 'w':
      case 'W':
        put(word_ranges(), c == 'W');
        return {};
      case 'p':
      case 'P':
        return property(c == 'P');
      default:
        break;
    }
    const bool alphanumeric =
        is_letter(static_cast<unsigned char>(c)) || is_number(static_cast<unsigned char>(c));
    constexpr std::string_view kSame = "rntfvax0Az";  // mean the same in both engines
    if (alphanumeric && kSame.find(c) == std::string_view::npos)
      return unsupported_construct(std::string("\\") + c, pattern_);
    out_ += '\\';
    out_ += c;
    return {};
  }

  Status property(bool negated) {
    const std::size_t close = pattern_.find('}', at_);
    if (at_ >= pattern_.size() || pattern_[at_] != '{' || close == std::string_view::npos)
      return unsupported_construct("\\p without {…}", pattern_);
    std::string_view name = pattern_.substr(at_ + 1, close - at_ - 1);
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const CodePointRanges ranges = category_ranges(name);
    if (ranges.empty()) return unsupported_construct("\\p{" + std::string(name) + "}", pattern_);
    put(ranges, negated);
    at_ = close + 1;
    return {};
  }

  std::string_view pattern_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

}  // namespace

struct Regex::Code {
  std::string pattern;
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;
  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() {
    pcre2_match_context_free(context);
    pcre2_code_free(code);
  }
};

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<std::string> rewrite_pattern(std::string_view pattern) { return Rewriter(pattern).run(); }

Result<Regex> Regex::compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes)
    return make_error(ErrorCode::kUnsupported,
                      "regular expression of " + std::to_string(pattern.size()) +
                          " bytes; at most " + std::to_string(kMaxPatternBytes) + " are accepted");
  EVALCAR_ASSIGN_OR_RETURN(const std::string rewritten, rewrite_pattern(pattern));
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  if (!context)
    return make_error(ErrorCode::kUnavailable, "out of memory for a regular expression");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_unique<Code>();
  code->pattern = pattern;
  // ^ and $ are those of lines in Ruby's syntax.
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(rewritten.data()), rewritten.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                             &error, &offset, context.get());
  if (code->code == nullptr) {
    std::array<PCRE2_UCHAR, 256> message{};
    pcre2_get_error_message(error, message.data(), message.size());
    return make_error(ErrorCode::kUnsupported, "regular expression " + std::string(pattern) + ": " +
                                                   reinterpret_cast<const char*>(message.data()));
  }
  pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);  // without it matching is slower, not wrong
  code->context = pcre2_match_context_create(nullptr);
  if (code->context == nullptr)
    return make_error(ErrorCode::kUnavailable, "out of memory for a regular expression");
  pcre2_set_match_limit(code->context, kMatchLimit);
  pcre2_set_heap_limit(code->context, kHeapLimitKib);
  return Regex(std::move(code));
}

Result<Regex> Regex::compile_literal(std::string_view literal) {
  std::string pattern;
  for (const char c : literal) {
    const bool special = std::string_view("\\^$.[]|()?*+{}-/#& ").find(c) != std::string_view::npos;
    if (special) pattern += '\\';
    pattern += c;
  }
  return compile(pattern);
}

bool Regex::may_match_nothing() const {
  std::uint32_t may = 1;
  (void)pcre2_pattern_info(code_->code, PCRE2_INFO_MATCHEMPTY, &may);
  return may != 0;
}

Status Regex::for_each_match(std::string_view text,
                             const std::function<void(std::size_t, std::size_t)>& found) const {
  const std::unique_ptr<pcre2_match_data, FreeMatchData> data(
      pcre2_match_data_create_from_pattern(code_->code, nullptr));
  if (!data) return make_error(ErrorCode::kUnavailable, "out of memory for a regular expression");
  const auto deadline = std::chrono::steady_clock::now() + kTimeLimit;
  std::size_t at = 0;
  std::size_t count = 0;
  std::optional<std::size_t> last_end;  // an empty match right behind another is none
  while (at <= text.size()) {
    const int result = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()),
                                   text.size(), at, PCRE2_NO_UTF_CHECK, data.get(), code_->context);
    if (result == PCRE2_ERROR_NOMATCH) return {};
    const bool late = (++count % 64 == 0) && std::chrono::steady_clock::now() > deadline;
    if (result < 0 || late)
      return make_error(late ? ErrorCode::kUnavailable : ErrorCode::kUnsupported,
                        "the tokenizer's regular expression takes too long on this text (" +
                            std::string(late ? "time limit" : "step limit") + " at byte " +
                            std::to_string(at) + " of " + std::to_string(text.size()) +
                            "): " + code_->pattern);
    const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(data.get());
    const std::size_t begin = offsets[0], end = offsets[1];
    if (begin > end) return {};  // \K in a lookahead: refused above, so this cannot happen
    if (begin == end && last_end == end) {
      at = end < text.size() ? end + decode_utf8(text, end).length_bytes : end + 1;
      continue;
    }
    found(begin, end);
    at = end;
    last_end = end;
  }
  return {};
}

}  // namespace evalcar::text
