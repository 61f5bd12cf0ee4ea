#include "evaluator/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>

#include "evaluator/text/unicode_ranges.h"

namespace evalcar::text {
namespace {

constexpr char32_t kLastCodePoint = 0x10FFFF;
// In the order of make_unicode_ranges.py.
constexpr std::array<std::string_view, 30> kCategoryNames = {
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
    "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};
constexpr int kLastLetter = 4, kLastMark = 7, kDecimalDigit = 8, kLetterNumber = 9,
              kLastNumber = 10;
constexpr int kConnector = 11;

// One byte a code point, filled from the ranges at first use (1.1 MB, under a millisecond): a
// lookup is one load.
const std::vector<std::uint8_t>& category_table() {
  static const std::vector<std::uint8_t> table = [] {
    std::vector<std::uint8_t> bytes(kLastCodePoint + 1);
    for (std::size_t i = 0; i < kCategoryRangeCount; ++i) {
      const std::size_t end = i + 1 < kCategoryRangeCount ? kCategoryRanges[i + 1].first
                                                          : std::size_t{kLastCodePoint} + 1;
      std::fill(bytes.begin() + kCategoryRanges[i].first,
                bytes.begin() + static_cast<std::ptrdiff_t>(end), kCategoryRanges[i].category);
    }
    return bytes;
  }();
  return table;
}

int category(char32_t code_point) {
  return code_point <= kLastCodePoint ? category_table()[code_point] : -1;
}

bool is_inert(char32_t code_point) {
  const auto* end = kInertRanges + kInertRangeCount;
  const auto* it =
      std::upper_bound(kInertRanges, end, code_point,
                       [](char32_t c, const InertRange& range) { return c < range.first; });
  return it != kInertRanges && code_point <= (it - 1)->last;
}

// A byte that continues a sequence whose first byte is `lead`; the second byte has narrower limits.
bool continues(unsigned char lead, std::uint32_t index, unsigned char byte) {
  if ((byte & 0xC0U) != 0x80U) return false;
  if (index != 1) return true;
  switch (lead) {
    case 0xE0:
      return byte >= 0xA0;  // shorter forms exist
    case 0xED:
      return byte <= 0x9F;  // surrogates
    case 0xF0:
      return byte >= 0x90;
    case 0xF4:
      return byte <= 0x8F;  // above U+10FFFF
    default:
      return true;
  }
}

Status append_normalized(std::string& out, std::string_view text, NormalForm form) {
  if (is_ascii(text)) {
    out += text;
    return {};
  }
  const int options =
      UTF8PROC_STABLE | (form == NormalForm::kNfc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
  utf8proc_uint8_t* raw = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &raw,
                                 static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owned(raw, &std::free);
  if (size < 0)
    return make_error(ErrorCode::kInternal,
                      std::string("cannot normalise the text: ") + utf8proc_errmsg(size));
  out.append(reinterpret_cast<const char*>(raw), static_cast<std::size_t>(size));
  return {};
}

}  // namespace

Decoded decode_utf8(std::string_view text, std::size_t position) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(position);
  if (lead < 0x80) return {lead, 1, true};
  const std::uint32_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                               : lead >= 0xE0 && lead <= 0xEF ? 3
                               : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                              : 0;
  if (length == 0) return {};
  char32_t code_point = lead & (0x7FU >> length);
  for (std::uint32_t i = 1; i < length; ++i) {
    if (position + i >= text.size() || !continues(lead, i, byte(position + i)))
      return {0xFFFD, i, false};
    code_point = (code_point << 6U) | (byte(position + i) & 0x3FU);
  }
  return {code_point, length, true};
}

void append_utf8(std::string& out, char32_t code_point) {
  const auto put = [&](char32_t bits) {
    out += static_cast<char>(static_cast<unsigned char>(bits));
  };
  if (code_point < 0x80) return put(code_point);
  if (code_point < 0x800) {
    put(0xC0U | (code_point >> 6U));
  } else if (code_point < 0x10000) {
    put(0xE0U | (code_point >> 12U));
    put(0x80U | ((code_point >> 6U) & 0x3FU));
  } else {
    put(0xF0U | (code_point >> 18U));
    put(0x80U | ((code_point >> 12U) & 0x3FU));
    put(0x80U | ((code_point >> 6U) & 0x3FU));
  }
  put(0x80U | (code_point & 0x3FU));
}

bool is_one_character(std::string_view text) {
  return !text.empty() && decode_utf8(text, 0).length_bytes == text.size();
}

bool is_ascii(std::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<signed char>(c) < 0; });
}

bool is_valid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const Decoded next = decode_utf8(text, i);
    if (!next.valid) return false;
    i += next.length_bytes;
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const Decoded next = decode_utf8(text, i);
    if (next.valid) {
      out += text.substr(i, next.length_bytes);
    } else {
      out += "\xEF\xBF\xBD";
    }
    i += next.length_bytes;
  }
  return out;
}

bool is_letter(char32_t code_point) {
  if (code_point < 0x80) return (code_point | 0x20U) - 'a' < 26;
  const int found = category(code_point);
  return found >= 0 && found <= kLastLetter;
}

bool is_number(char32_t code_point) {
  if (code_point < 0x80) return code_point - '0' < 10;
  const int found = category(code_point);
  return found >= kDecimalDigit && found <= kLastNumber;
}

bool is_decimal_digit(char32_t code_point) { return category(code_point) == kDecimalDigit; }

bool is_space(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_word(char32_t c) {
  const int found = category(c);
  if (found < 0) return false;
  // Alphabetic beside letters, marks and letter numbers: circled, squared, negative Latin letters.
  const bool enclosed_letter = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                               (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  return found <= kLastMark || found == kDecimalDigit || found == kLetterNumber ||
         found == kConnector || enclosed_letter || c == 0x200C || c == 0x200D;
}

bool is_printable(char32_t c) {
  constexpr int kFirstSeparator = 22;  // Zs Zl Zp Cc Cf Cs Co Cn
  const int found = category(c);
  return c == ' ' || (found >= 0 && found < kFirstSeparator);
}

std::string to_lower(std::string_view text) {
  std::string out;
  char32_t before = 0;
  for (std::size_t i = 0; i < text.size();) {
    const Decoded next = decode_utf8(text, i);
    const char32_t c = next.code_point;
    i += next.length_bytes;
    if (c == 0x130) {
      out += "i\xCC\x87";
    } else if (c == 0x3A3 && is_letter(before) &&
               (i >= text.size() || !is_letter(decode_utf8(text, i).code_point))) {
      append_utf8(out, 0x3C2);
    } else {
      append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
    before = c;
  }
  return out;
}

std::string to_upper(std::string_view text) {
  constexpr std::array<std::string_view, 7> kLigatures = {"FF",  "FI", "FL", "FFI",
                                                          "FFL", "ST", "ST"};
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const Decoded next = decode_utf8(text, i);
    const char32_t c = next.code_point;
    i += next.length_bytes;
    if (c == 0xDF) {
      out += "SS";
    } else if (c >= 0xFB00 && c <= 0xFB06) {
      out += kLigatures[c - 0xFB00];
    } else {
      append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
    }
  }
  return out;
}

CodePointRanges category_ranges(std::string_view name) {
  CodePointRanges ranges;
  for (std::size_t i = 0; i < kCategoryRangeCount; ++i) {
    const std::string_view full = kCategoryNames[kCategoryRanges[i].category];
    if (full != name && (name.size() != 1 || full[0] != name[0])) continue;
    const char32_t first = kCategoryRanges[i].first;
    const char32_t last =
        i + 1 < kCategoryRangeCount ? kCategoryRanges[i + 1].first - 1 : kLastCodePoint;
    if (!ranges.empty() && ranges.back().second + 1 == first) {
      ranges.back().second = last;
    } else {
      ranges.emplace_back(first, last);
    }
  }
  return ranges;
}

CodePointRanges space_ranges() {
  return {{0x9, 0xD},       {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
          {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
}

CodePointRanges complement(const CodePointRanges& ranges) {
  CodePointRanges rest;
  char32_t next = 0;
  for (const auto& [first, last] : ranges) {
    if (first > next) rest.emplace_back(next, first - 1);
    next = last + 1;
  }
  if (next <= kLastCodePoint) rest.emplace_back(next, kLastCodePoint);
  return rest;
}

Result<std::string> normalize(std::string_view text, NormalForm form) {
  std::string out;
  out.reserve(text.size());
  std::size_t start = 0;  // of the run that utf8proc gets
  for (std::size_t i = 0; i < text.size();) {
    const Decoded next = decode_utf8(text, i);
    if (next.code_point >= 0x7FD && is_inert(next.code_point)) {
      EVALCAR_RETURN_IF_ERROR(append_normalized(out, text.substr(start, i - start), form));
      out += text.substr(i, next.length_bytes);
      start = i + next.length_bytes;
    }
    i += next.length_bytes;
  }
  EVALCAR_RETURN_IF_ERROR(append_normalized(out, text.substr(start), form));
  return out;
}

}  // namespace evalcar::text
