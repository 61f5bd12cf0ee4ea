// UTF-8, general categories (Unicode 16) and canonical normalisation, as Hugging Face's
// `tokenizers` has them. Everything here is a pure function; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/base/result.h"

namespace evalcar::text {

/// One code point of a text.
struct Decoded {
  char32_t code_point = 0xFFFD;
  std::uint32_t length_bytes = 1;  ///< at least 1; of an invalid sequence, its maximal subpart
  bool valid = false;
};
/// The code point at `position`, which must be inside the text.
Decoded decode_utf8(std::string_view text, std::size_t position);
void append_utf8(std::string& out, char32_t code_point);
/// Each maximal invalid subpart becomes one U+FFFD (Unicode 16, section 3.9; Rust's
/// from_utf8_lossy).
std::string replace_invalid_utf8(std::string_view text);
bool is_valid_utf8(std::string_view text);
/// Whether a valid text is one code point.
bool is_one_character(std::string_view text);
bool is_ascii(std::string_view text);
inline bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

bool is_letter(char32_t code_point);         ///< \p{L}
bool is_number(char32_t code_point);         ///< \p{N}
bool is_decimal_digit(char32_t code_point);  ///< \p{Nd}
bool is_space(char32_t code_point);          ///< \s: White_Space
/// \w of Rust's regular expressions: Alphabetic, marks, decimal digits, connectors, joiners.
bool is_word(char32_t code_point);

bool is_printable(char32_t code_point);  ///< str.isprintable() of Python
/// Lower and upper case by the simple mappings, with the sharp s, the Latin ligatures, the dotted I
/// and the final sigma as Python has them.
std::string to_lower(std::string_view text);
std::string to_upper(std::string_view text);

/// Inclusive ranges of code points, sorted, apart from each other.
using CodePointRanges = std::vector<std::pair<char32_t, char32_t>>;
/// The ranges of a general category ("Lu") or of a group ("L"); empty if there is none of the name.
CodePointRanges category_ranges(std::string_view name);
CodePointRanges space_ranges();
/// All code points that are in none of the ranges.
CodePointRanges complement(const CodePointRanges& ranges);

enum class NormalForm { kNfc, kNfd };
/// The text (valid UTF-8) in the normal form.
Result<std::string> normalize(std::string_view text, NormalForm form);

}  // namespace evalcar::text
