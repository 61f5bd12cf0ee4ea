#include "evaluator/metrics/python_number.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace evalcar::metrics {
namespace {

std::string lower_ascii(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Drops underscores that stand between two digits; absent if one stands elsewhere.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out.push_back(text[i]);
      continue;
    }
    const bool between =
        i > 0 && is_digit(text[i - 1]) && i + 1 < text.size() && is_digit(text[i + 1]);
    if (!between) return std::nullopt;
  }
  return out;
}

// digits [. digits] [e [sign] digits], with at least one digit in front of the exponent.
bool is_plain_number(std::string_view text) {
  std::size_t i = 0;
  std::size_t digits = 0;
  const auto skip_digits = [&] {
    const std::size_t start = i;
    while (i < text.size() && is_digit(text[i])) ++i;
    return i - start;
  };
  digits += skip_digits();
  if (i < text.size() && text[i] == '.') {
    ++i;
    digits += skip_digits();
  }
  if (digits == 0) return false;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
    if (skip_digits() == 0) return false;
  }
  return i == text.size();
}

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // Python writes an exponent when it is below -4 or at least 16.
  std::array<char, 64> scientific{};
  const auto end = std::to_chars(scientific.data(), scientific.data() + scientific.size(), value,
                                 std::chars_format::scientific);
  const std::string_view text(scientific.data(),
                              static_cast<std::size_t>(end.ptr - scientific.data()));
  const std::size_t e = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  if (value != 0 && (exponent < -4 || exponent >= 16)) return std::string(text);
  std::array<char, 400> fixed{};
  const auto fixed_end =
      std::to_chars(fixed.data(), fixed.data() + fixed.size(), value, std::chars_format::fixed);
  std::string out(fixed.data(), fixed_end.ptr);
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

double round_to(double value, int digits) {
  if (!std::isfinite(value)) return value;
  std::array<char, 400> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.*f", digits, value);
  return std::strtod(buffer.data(), nullptr);
}

std::optional<double> parse_float(TextView text) {
  // The separators U+001C to U+001F are blanks for strip(), but not for float().
  const auto is_blank = [](char32_t c) { return is_space(c) && !(c >= 0x1C && c <= 0x1F); };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  std::string ascii;
  for (const char32_t c : text) {
    if (is_decimal(c)) {
      ascii.push_back(static_cast<char>('0' + decimal_value(c)));
    } else if (c < 0x80) {
      ascii.push_back(static_cast<char>(c));
    } else {
      return std::nullopt;
    }
  }
  const auto plain = without_underscores(ascii);
  if (!plain) return std::nullopt;
  std::string_view body = *plain;
  bool negative = false;
  if (!body.empty() && (body[0] == '+' || body[0] == '-')) {
    negative = body[0] == '-';
    body.remove_prefix(1);
  }
  double value = 0;
  const std::string word = lower_ascii(body);
  if (word == "inf" || word == "infinity") {
    value = HUGE_VAL;
  } else if (word == "nan") {
    value = std::nan("");
  } else if (is_plain_number(body)) {
    value = std::strtod(std::string(body).c_str(), nullptr);
  } else {
    return std::nullopt;
  }
  return negative ? -value : value;
}

}  // namespace evalcar::metrics
