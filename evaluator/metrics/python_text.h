// Text as CPython sees it: the scorers of lmms-eval are Python, so "strip", "lower" and "a digit"
// mean what Python 3.11 means by them (Unicode 14: full case mapping, final sigma, every Unicode
// blank). Text is a sequence of code points; the tables were read off the interpreter
// (unicode_tables.inc).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace evalcar::metrics {

using Text = std::u32string;
using TextView = std::u32string_view;

/// From UTF-8; each byte that is not valid UTF-8 becomes U+FFFD.
Text decode_utf8(std::string_view bytes);
/// To UTF-8; surrogates and numbers beyond Unicode become U+FFFD.
std::string encode_utf8(TextView text);

bool is_space(char32_t c);      ///< str.isspace
bool is_decimal(char32_t c);    ///< re's \d
bool is_word(char32_t c);       ///< re's \w
bool is_printable(char32_t c);  ///< str.isprintable
/// Value 0..9 of a character for which is_decimal() holds.
int decimal_value(char32_t c);

/// str.strip(), of whitespace.
TextView strip(TextView text);
/// str.strip("…") of the given characters.
TextView strip_characters(TextView text, TextView characters);
/// str.lower(): full mappings, and a final sigma at the end of words.
Text lower(TextView text);
/// str.upper().
Text upper(TextView text);
/// str.capitalize(): the first character in title case, the rest lower.
Text capitalize(TextView text);
/// str.split(): by runs of whitespace, no empty parts.
std::vector<TextView> split_whitespace(TextView text);
/// " ".join(text.split()).
Text collapse_whitespace(TextView text);
/// str.replace(from, to); `from` is not empty.
Text replace_all(TextView text, TextView from, TextView to);
bool contains(TextView text, TextView part);

/// repr(str): in quotes, with Python's choice of quote and escapes.
std::string repr(std::string_view utf8);

/// lmms-eval's strip_reasoning_tags with its default pairs (<think>, <analysis>), then strip(). The
/// result is UTF-8 as given.
std::string strip_reasoning_tags(std::string_view utf8);

/// str.strip() on UTF-8.
std::string strip_utf8(std::string_view utf8);

}  // namespace evalcar::metrics
