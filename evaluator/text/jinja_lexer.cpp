#include "evaluator/text/jinja_lexer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "evaluator/text/unicode.h"

namespace evalcar::text::jinja {
namespace {

// "\r\n" and "\r" become "\n"; one newline at the end goes.
std::string with_plain_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else if (i + 1 >= source.size() || source[i + 1] != '\n') {
      out += '\n';
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

std::size_t skip_space(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const Decoded next = decode_utf8(text, at);
    if (!is_python_space(next.code_point)) break;
    at += next.length_bytes;
  }
  return at;
}

std::size_t space_before(std::string_view text, std::size_t end, std::size_t begin) {
  while (end > begin) {
    std::size_t at = end - 1;
    while (at > begin && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U) --at;
    if (!is_python_space(decode_utf8(text, at).code_point)) break;
    end = at;
  }
  return end;
}

bool is_ascii_name(char c) {
  return is_ascii_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
int hex_value(char c) {
  if (is_ascii_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) EVALCAR_RETURN_IF_ERROR(root());
    tokens_.push_back({TokenType::kEnd, "end of template", line_});
    return std::move(tokens_);
  }

 private:
  Error error(const std::string& message) const {
    return make_error(ErrorCode::kCorruption, "line " + std::to_string(line_) + ": " + message);
  }
  bool next_is(std::string_view text) const {
    return std::string_view(source_).substr(at_, text.size()) == text;
  }
  void advance_to(std::size_t end) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    at_ = end;
  }
  void put(TokenType type, std::string text) { tokens_.push_back({type, std::move(text), line_}); }

  // Text before a tag that begins at `end`; `sign` is the character behind the tag's two.
  void put_data(std::size_t begin, std::size_t end, char sign, bool variable) {
    std::size_t keep = end;
    if (sign == '-') {
      keep = space_before(source_, end, begin);
    } else if (sign != '+' && !variable) {
      const std::size_t newline = std::string_view(source_).substr(begin, end - begin).rfind('\n');
      const bool found = newline != std::string_view::npos;
      const std::size_t line_begin = found ? begin + newline + 1 : begin;
      const bool whole_line = found || line_starting_;
      if (whole_line && skip_space(std::string_view(source_).substr(0, end), line_begin) == end)
        keep = line_begin;
    }
    if (keep > begin) put(TokenType::kData, source_.substr(begin, keep - begin));
    advance_to(end);
  }

  char sign_at(std::size_t tag) const {
    const char c = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    return c == '-' || c == '+' ? c : '\0';
  }

  Status root() {
    std::size_t tag = source_.find('{', at_);
    while (tag != std::string::npos &&
           (tag + 1 >= source_.size() ||
            std::string_view("{%#").find(source_[tag + 1]) == std::string_view::npos))
      tag = source_.find('{', tag + 1);
    if (tag == std::string::npos) {
      put(TokenType::kData, source_.substr(at_));
      advance_to(source_.size());
      return {};
    }
    const char kind = source_[tag + 1];
    const char sign = sign_at(tag);
    put_data(at_, tag, sign, kind == '{');
    advance_to(tag + (sign == '\0' ? 2 : 3));
    if (kind == '#') return comment();
    if (kind == '%') {
      if (const auto end = raw_begin_end()) return raw(*end);
    }
    put(kind == '{' ? TokenType::kVariableBegin : TokenType::kBlockBegin, "");
    return kind == '{' ? expression("}}", TokenType::kVariableEnd)
                       : expression("%}", TokenType::kBlockEnd);
  }

  // At "%}", "-%}" or "+%}" (or with another closer): steps over it and the blanks it takes along.
  bool close(std::string_view closer, bool trims_newline) {
    const std::size_t begin = at_;
    if (next_is("-" + std::string(closer))) {
      advance_to(skip_space(source_, at_ + 1 + closer.size()));
    } else if (trims_newline && next_is("+" + std::string(closer))) {
      advance_to(at_ + 1 + closer.size());
    } else if (next_is(closer)) {
      advance_to(at_ + closer.size());
      if (trims_newline && at_ < source_.size() && source_[at_] == '\n') advance_to(at_ + 1);
    } else {
      return false;
    }
    line_starting_ = at_ > begin && source_[at_ - 1] == '\n';
    return true;
  }

  Status comment() {
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string::npos && at_ == source_.size()) return {};
    if (end == std::string::npos) return error("a comment without its #}");
    const bool signed_end = end > at_ && (source_[end - 1] == '-' || source_[end - 1] == '+');
    advance_to(signed_end ? end - 1 : end);
    close("#}", true);
    return {};
  }

  // Behind "{%": the end of "raw %}" or "raw -%}", if that is what follows.
  std::optional<std::size_t> raw_begin_end() const {
    std::size_t at = skip_space(source_, at_);
    if (source_.compare(at, 3, "raw") != 0) return std::nullopt;
    at = skip_space(source_, at + 3);
    if (source_.compare(at, 3, "-%}") == 0) return skip_space(source_, at + 3);
    if (source_.compare(at, 2, "%}") == 0) return at + 2;
    return std::nullopt;
  }

  Status raw(std::size_t begin) {
    advance_to(begin);
    line_starting_ = source_[at_ - 1] == '\n';
    for (std::size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 2)) {
      const char sign = sign_at(tag);
      std::size_t after = skip_space(source_, tag + (sign == '\0' ? 2 : 3));
      if (source_.compare(after, 6, "endraw") != 0) continue;
      after = skip_space(source_, after + 6);
      const auto rest = std::string_view(source_).substr(after);
      if (!rest.starts_with("%}") && !rest.starts_with("-%}") && !rest.starts_with("+%}")) continue;
      put_data(at_, tag, sign, false);
      advance_to(after);
      close("%}", true);
      return {};
    }
    if (at_ == source_.size()) return {};  // as Jinja has it: nothing was left open
    return error("{% raw %} without {% endraw %}");
  }

  Status expression(std::string_view closer, TokenType end_type) {
    brackets_.clear();
    while (true) {
      advance_to(skip_space(source_, at_));
      if (at_ >= source_.size())
        return error("the template ends inside a tag; expected " + std::string(closer));
      if (brackets_.empty()) {
        const int line = line_;
        if (close(closer, end_type == TokenType::kBlockEnd)) {
          tokens_.push_back({end_type, std::string(closer), line});
          return {};
        }
      }
      EVALCAR_RETURN_IF_ERROR(expression_token());
    }
  }

  Status expression_token() {
    const char c = source_[at_];
    if (c == '"' || c == '\'') return string_token(c);
    if (is_ascii_digit(c)) return number_token();
    const Decoded next = decode_utf8(source_, at_);
    if (is_ascii_name(c) || (next.code_point >= 0x80 && is_word(next.code_point)))
      return name_token();
    return operator_token();
  }

  Status name_token() {
    std::size_t end = at_;
    while (end < source_.size()) {
      const Decoded next = decode_utf8(source_, end);
      const bool inside =
          next.code_point < 0x80 ? is_ascii_name(source_[end]) : is_word(next.code_point);
      if (!inside) break;
      end += next.length_bytes;
    }
    put(TokenType::kName, source_.substr(at_, end - at_));
    advance_to(end);
    return {};
  }

  std::size_t digits_end(std::size_t at) const {
    while (at < source_.size() &&
           (is_ascii_digit(source_[at]) ||
            (source_[at] == '_' && at + 1 < source_.size() && is_ascii_digit(source_[at + 1]))))
      ++at;
    return at;
  }

  Status number_token() {
    std::size_t end = digits_end(at_);
    bool is_float = false;
    const auto digit_at = [&](std::size_t i) {
      return i < source_.size() && is_ascii_digit(source_[i]);
    };
    if (end < source_.size() && source_[end] == '.' && digit_at(end + 1)) {
      end = digits_end(end + 1);
      is_float = true;
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const bool sign =
          end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-');
      if (digit_at(end + (sign ? 2 : 1))) {
        end = digits_end(end + (sign ? 2 : 1));
        is_float = true;
      }
    }
    if (end < source_.size() && is_ascii_name(source_[end]))
      return error("a number that runs into a name, or is not decimal");
    std::string text = source_.substr(at_, end - at_);
    std::erase(text, '_');
    put(is_float ? TokenType::kFloat : TokenType::kInteger, std::move(text));
    advance_to(end);
    return {};
  }

  Status operator_token() {
    constexpr std::array<std::string_view, 25> kOperators = {
        "//", "**", "==", "!=", "<=", ">=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","};
    for (const std::string_view op : kOperators) {
      if (!next_is(op)) continue;
      if (op == "(" || op == "[" || op == "{")
        brackets_ += op[0] == '(' ? ')' : op[0] == '[' ? ']' : '}';
      if (op == ")" || op == "]" || op == "}") {
        if (brackets_.empty() || brackets_.back() != op[0])
          return error("an unexpected '" + std::string(op) + "'");
        brackets_.pop_back();
      }
      put(TokenType::kOperator, std::string(op));
      advance_to(at_ + op.size());
      return {};
    }
    return error("an unexpected character '" +
                 source_.substr(at_, decode_utf8(source_, at_).length_bytes) + "'");
  }

  Status string_token(char quote) {
    std::string value;
    std::size_t i = at_ + 1;
    for (; i < source_.size() && source_[i] != quote;) {
      if (source_[i] != '\\') {
        value += source_[i++];
        continue;
      }
      if (i + 1 >= source_.size()) break;
      EVALCAR_RETURN_IF_ERROR(escape(i, value));
    }
    if (i >= source_.size()) return error("a string without its closing quote");
    put(TokenType::kString, std::move(value));
    advance_to(i + 1);
    return {};
  }

  // At a backslash that is not the last character: Python's escapes.
  Status escape(std::size_t& i, std::string& value) const {
    constexpr std::string_view kLetters = "ntrabfv\\'\"";
    constexpr std::string_view kValues = "\n\t\r\a\b\f\v\\'\"";
    const char c = source_[i + 1];
    i += 2;
    if (const auto at = kLetters.find(c); at != std::string_view::npos) {
      value += kValues[at];
      return {};
    }
    if (c == '\n') return {};
    if (c >= '0' && c <= '7') {
      char32_t code = 0;
      --i;
      for (int n = 0; n < 3 && i < source_.size() && source_[i] >= '0' && source_[i] <= '7'; ++n)
        code = code * 8 + static_cast<char32_t>(source_[i++] - '0');
      append_utf8(value, code);
      return {};
    }
    const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0) {
      if (c == 'N') return error("\\N{…} in a string is not supported");
      value += '\\';
      --i;  // the character itself follows as it is
      value += source_[i++];
      return {};
    }
    char32_t code = 0;
    for (int n = 0; n < digits; ++n, ++i) {
      const int digit = i < source_.size() ? hex_value(source_[i]) : -1;
      if (digit < 0) return error(std::string("a bad \\") + c + " escape in a string");
      code = code * 16 + static_cast<char32_t>(digit);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      return error(std::string("a \\") + c + " escape that is no character");
    append_utf8(value, code);
    return {};
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::string brackets_;  // the closers that are due
  std::vector<Token> tokens_;
};

}  // namespace

bool is_python_space(char32_t c) { return is_space(c) || (c >= 0x1C && c <= 0x1F); }

Result<std::vector<Token>> tokenize(std::string_view source) {
  return Lexer(with_plain_newlines(source)).run();
}

}  // namespace evalcar::text::jinja
