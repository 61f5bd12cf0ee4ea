// ast.literal_eval for the one kind of literal that data sets hold: a list (or tuple) of strings,
// perhaps of numbers.
#include <cstdint>

#include "evaluator/metrics/mmmu.h"
#include "evaluator/metrics/python_text.h"

namespace evalcar::metrics {
namespace {

constexpr std::size_t kMostItems = 10'000;

class LiteralReader {
 public:
  explicit LiteralReader(std::string_view utf8) : text_(decode_utf8(utf8)) {}

  Result<std::vector<std::string>> list() {
    skip_blanks();
    const char32_t close = peek() == U'[' ? U']' : U')';
    if (peek() != U'[' && peek() != U'(') return wrong("a list that starts with [");
    ++at_;
    std::vector<std::string> items;
    for (;;) {
      skip_blanks();
      if (peek() == close) break;
      if (items.size() == kMostItems) return wrong("at most 10000 items");
      EVALCAR_ASSIGN_OR_RETURN(std::string item, this->item());
      items.push_back(std::move(item));
      skip_blanks();
      if (peek() == U',') {
        ++at_;
      } else if (peek() != close) {
        return wrong("a comma or the end of the list");
      }
    }
    ++at_;
    skip_blanks();
    if (at_ != text_.size()) return wrong("nothing behind the list");
    return items;
  }

 private:
  char32_t peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : 0;
  }

  void skip_blanks() {
    while (peek() == U' ' || peek() == U'\t' || peek() == U'\n' || peek() == U'\r' ||
           peek() == U'\f')
      ++at_;
  }

  Error wrong(std::string_view expected) const {
    const std::string seen = at_ < text_.size()
                                 ? "\"" + encode_utf8(TextView(text_).substr(at_, 12)) + "\""
                                 : "the end of the text";
    return make_error(ErrorCode::kCorruption, "not a Python list: at character " +
                                                  std::to_string(at_) + " expected " +
                                                  std::string(expected) + ", seen " + seen);
  }

  bool at_string() const {
    std::size_t k = 0;
    while (k < 2 && (peek(k) == U'r' || peek(k) == U'R' || peek(k) == U'u' || peek(k) == U'U')) ++k;
    return peek(k) == U'\'' || peek(k) == U'"';
  }

  Result<std::string> item() {
    if (!at_string()) return number();
    Text value;
    while (at_string()) {  // neighbours are one string
      EVALCAR_ASSIGN_OR_RETURN(const Text part, string());
      value += part;
      skip_blanks();
    }
    return encode_utf8(value);
  }

  Result<std::string> number() {
    const std::size_t start = at_;
    const auto belongs = [](char32_t c) {
      return (c >= U'0' && c <= U'9') || c == U'.' || c == U'-' || c == U'+' || c == U'e' ||
             c == U'E';
    };
    while (belongs(peek())) ++at_;
    if (at_ == start) return wrong("a string or a number");
    return encode_utf8(TextView(text_).substr(start, at_ - start));
  }

  Result<Text> string() {
    bool raw = false;
    while (peek() != U'\'' && peek() != U'"') {
      raw = raw || peek() == U'r' || peek() == U'R';
      ++at_;
    }
    const char32_t quote = peek();
    const bool triple = peek(1) == quote && peek(2) == quote;
    at_ += triple ? 3 : 1;
    Text value;
    for (;;) {
      if (at_ >= text_.size()) return wrong("the end of a string");
      const char32_t c = peek();
      if (c == quote && (!triple || (peek(1) == quote && peek(2) == quote))) {
        at_ += triple ? 3 : 1;
        return value;
      }
      if (c == U'\n' && !triple) return wrong("no line break inside a string");
      if (c != U'\\') {
        value.push_back(c);
        ++at_;
      } else if (raw) {
        value.push_back(c);
        value.push_back(peek(1));
        at_ += 2;
      } else {
        EVALCAR_RETURN_IF_ERROR(escape(value));
      }
    }
  }

  Status hexadecimal(Text& value, std::size_t digits) {
    char32_t code = 0;
    for (std::size_t i = 0; i < digits; ++i, ++at_) {
      const char32_t c = peek();
      if (c >= U'0' && c <= U'9') {
        code = code * 16 + (c - U'0');
      } else if (c >= U'a' && c <= U'f') {
        code = code * 16 + (c - U'a' + 10);
      } else if (c >= U'A' && c <= U'F') {
        code = code * 16 + (c - U'A' + 10);
      } else {
        return wrong("a hexadecimal digit");
      }
    }
    if (code > 0x10FFFF) return wrong("a code point up to 10FFFF");
    value.push_back(code);
    return {};
  }

  Status escape(Text& value) {
    const char32_t c = peek(1);
    at_ += 2;
    static constexpr TextView kNames = U"\\'\"abfnrtv";
    static constexpr TextView kValues = U"\\'\"\a\b\f\n\r\t\v";
    if (const std::size_t known = kNames.find(c); c != 0 && known != TextView::npos) {
      value.push_back(kValues[known]);
    } else if (c == U'\n') {
      // a line break behind a backslash is nothing
    } else if (c == U'x') {
      return hexadecimal(value, 2);
    } else if (c == U'u') {
      return hexadecimal(value, 4);
    } else if (c == U'U') {
      return hexadecimal(value, 8);
    } else if (c >= U'0' && c <= U'7') {
      char32_t code = c - U'0';
      for (int i = 0; i < 2 && peek() >= U'0' && peek() <= U'7'; ++i, ++at_)
        code = code * 8 + (peek() - U'0');
      value.push_back(code);
    } else if (c == U'N' || c == 0) {
      return wrong("an escape other than \\N");
    } else {
      value.push_back(U'\\');
      value.push_back(c);
    }
    return {};
  }

  Text text_;
  std::size_t at_ = 0;
};

}  // namespace

Result<std::vector<std::string>> parse_python_list(std::string_view literal) {
  return LiteralReader(literal).list();
}

}  // namespace evalcar::metrics
