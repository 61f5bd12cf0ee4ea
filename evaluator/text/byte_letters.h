// GPT-2's letters for bytes: vocabularies spell each byte as one printable character, so that a
// token is a readable string ("Ġhello" is " hello").
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace evalcar::text {

/// The letters of the bytes, as UTF-8.
std::string bytes_to_letters(std::string_view bytes);
/// The byte of a letter, or nothing.
std::optional<unsigned char> letter_to_byte(char32_t letter);
/// The bytes of a token as tokenizers' ByteLevel decoder takes them: if one of its characters is no
/// letter, the token stands for itself.
std::string token_bytes(std::string_view token);

}  // namespace evalcar::text
