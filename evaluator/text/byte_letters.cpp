#include "evaluator/text/byte_letters.h"

#include <array>

#include "evaluator/text/unicode.h"

namespace evalcar::text {
namespace {

struct Letters {
  std::array<char32_t, 256> of_byte{};
  std::array<std::int16_t, 512> of_letter{};

  Letters() {
    of_letter.fill(-1);
    char32_t next = 256;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
                             (byte >= 0xAE && byte <= 0xFF);
      const char32_t letter = printable ? byte : next++;
      of_byte[byte] = letter;
      of_letter[letter] = static_cast<std::int16_t>(byte);
    }
  }
};

const Letters& letters() {
  static const Letters table;
  return table;
}

}  // namespace

std::string bytes_to_letters(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) append_utf8(out, letters().of_byte[static_cast<unsigned char>(c)]);
  return out;
}

std::optional<unsigned char> letter_to_byte(char32_t letter) {
  if (letter >= 512 || letters().of_letter[letter] < 0) return std::nullopt;
  return static_cast<unsigned char>(letters().of_letter[letter]);
}

std::string token_bytes(std::string_view token) {
  std::string out;
  for (std::size_t i = 0; i < token.size();) {
    const Decoded next = decode_utf8(token, i);
    const auto byte = letter_to_byte(next.code_point);
    if (!byte) return std::string(token);
    out += static_cast<char>(*byte);
    i += next.length_bytes;
  }
  return out;
}

}  // namespace evalcar::text
