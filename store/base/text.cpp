#include "store/base/text.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace evalcar {
namespace {

std::uint8_t byte_at(std::string_view text, std::size_t i) {
  return static_cast<std::uint8_t>(text[i]);
}

/// Bytes of the printable character that `text` begins with (RFC 3629, without C1 controls); 0 if
/// there is none.
std::size_t character(std::string_view text) {
  const std::uint8_t first = byte_at(text, 0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte_at(text, i) & 0xc0U) != 0x80U) return 0;
  }
  const std::uint8_t second = byte_at(text, 1);
  const bool control = first == 0xc2 && second < 0xa0;
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool surrogate = first == 0xed && second >= 0xa0;
  const bool too_large = first == 0xf4 && second >= 0x90;
  return control || overlong || surrogate || too_large ? 0 : length;
}

void append_escaped(std::string& out, char c) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  if (c == '\n') {
    out += "\\n";
  } else if (c == '\t') {
    out += "\\t";
  } else if (c == '\r') {
    out += "\\r";
  } else {
    const auto byte = static_cast<std::uint8_t>(c);
    out += "\\x";
    out += kDigits[byte >> 4U];
    out += kDigits[byte & 15U];
  }
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = character(text);
    if (length == 0) append_escaped(out, text[0]);
    out += text.substr(0, length);
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

Error with_lines(Error error, std::string_view lines) {
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    error.message += "\n" + printable(lines.substr(0, end));
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  return error;
}

}  // namespace evalcar
