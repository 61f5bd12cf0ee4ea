#include "evaluator/metrics/python_text.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <span>

namespace evalcar::metrics {
namespace {

struct CodeRange {
  char32_t first;
  char32_t last;
};

/// first, first + step, … last, each mapped to itself + offset.
struct CaseRun {
  char32_t first;
  char32_t last;
  std::uint32_t step;
  std::int32_t offset;
};

struct CaseSpecial {
  char32_t code;
  std::uint32_t length;
  char32_t to[3];
};

#include "evaluator/metrics/unicode_tables.inc"

const CodeRange* find_range(std::span<const CodeRange> table, char32_t c) {
  const auto found = std::lower_bound(table.begin(), table.end(), c,
                                      [](const CodeRange& r, char32_t v) { return r.last < v; });
  return found != table.end() && found->first <= c ? &*found : nullptr;
}

bool in(std::span<const CodeRange> table, char32_t c) { return find_range(table, c) != nullptr; }

void append_mapped(Text& out, char32_t c, std::span<const CaseRun> runs,
                   std::span<const CaseSpecial> specials) {
  const auto run = std::lower_bound(runs.begin(), runs.end(), c,
                                    [](const CaseRun& r, char32_t v) { return r.last < v; });
  if (run != runs.end() && run->first <= c && (c - run->first) % run->step == 0) {
    out.push_back(static_cast<char32_t>(static_cast<std::int64_t>(c) + run->offset));
    return;
  }
  const auto special =
      std::lower_bound(specials.begin(), specials.end(), c,
                       [](const CaseSpecial& s, char32_t v) { return s.code < v; });
  if (special != specials.end() && special->code == c) {
    out.append(special->to, special->length);
    return;
  }
  out.push_back(c);
}

// The capital sigma becomes a final one behind a cased letter when no cased letter follows
// (case-ignorable characters do not count).
bool is_final_sigma(TextView text, std::size_t at) {
  std::size_t before = at;
  while (before > 0 && in(kIgnorable, text[before - 1])) --before;
  if (before == 0 || !in(kCased, text[before - 1])) return false;
  std::size_t after = at + 1;
  while (after < text.size() && in(kIgnorable, text[after])) ++after;
  return after == text.size() || !in(kCased, text[after]);
}

void append_lower(Text& out, TextView text, std::size_t at) {
  if (text[at] == U'\u03a3') {
    out.push_back(is_final_sigma(text, at) ? U'\u03c2' : U'\u03c3');
  } else {
    append_mapped(out, text[at], kLowerRuns, kLowerSpecials);
  }
}

std::size_t sequence_length(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead < 0xE0) return 2;
  if (lead >= 0xE0 && lead < 0xF0) return 3;
  if (lead >= 0xF0 && lead < 0xF5) return 4;
  return 0;
}

}  // namespace

Text decode_utf8(std::string_view bytes) {
  Text out;
  out.reserve(bytes.size());
  for (std::size_t i = 0; i < bytes.size();) {
    const auto lead = static_cast<unsigned char>(bytes[i]);
    const std::size_t length = sequence_length(lead);
    bool valid = length > 0 && i + length <= bytes.size();
    char32_t c = length <= 1 ? lead : lead & (0x7FU >> length);
    for (std::size_t k = 1; valid && k < length; ++k) {
      const auto next = static_cast<unsigned char>(bytes[i + k]);
      valid = (next & 0xC0U) == 0x80U;
      c = (c << 6U) | (next & 0x3FU);
    }
    static constexpr std::array<char32_t, 5> kSmallest = {0, 0, 0x80, 0x800, 0x10000};
    valid = valid && c >= kSmallest[length] && c <= 0x10FFFF && !(c >= 0xD800 && c <= 0xDFFF);
    out.push_back(valid ? c : U'\uFFFD');
    i += valid ? length : 1;
  }
  return out;
}

std::string encode_utf8(TextView text) {
  std::string out;
  out.reserve(text.size());
  for (char32_t c : text) {
    if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) c = U'\uFFFD';
    if (c < 0x80) {
      out.push_back(static_cast<char>(c));
    } else if (c < 0x800) {
      out.push_back(static_cast<char>(0xC0U | (c >> 6U)));
      out.push_back(static_cast<char>(0x80U | (c & 0x3FU)));
    } else if (c < 0x10000) {
      out.push_back(static_cast<char>(0xE0U | (c >> 12U)));
      out.push_back(static_cast<char>(0x80U | ((c >> 6U) & 0x3FU)));
      out.push_back(static_cast<char>(0x80U | (c & 0x3FU)));
    } else {
      out.push_back(static_cast<char>(0xF0U | (c >> 18U)));
      out.push_back(static_cast<char>(0x80U | ((c >> 12U) & 0x3FU)));
      out.push_back(static_cast<char>(0x80U | ((c >> 6U) & 0x3FU)));
      out.push_back(static_cast<char>(0x80U | (c & 0x3FU)));
    }
  }
  return out;
}

bool is_space(char32_t c) { return in(kSpace, c); }
bool is_decimal(char32_t c) { return in(kDecimal, c); }
bool is_word(char32_t c) { return in(kWord, c); }
bool is_printable(char32_t c) { return in(kPrintable, c); }

int decimal_value(char32_t c) {
  const CodeRange* range = find_range(kDecimal, c);
  return range == nullptr ? 0 : static_cast<int>((c - range->first) % 10);
}

TextView strip(TextView text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

TextView strip_characters(TextView text, TextView characters) {
  while (!text.empty() && characters.find(text.front()) != TextView::npos) text.remove_prefix(1);
  while (!text.empty() && characters.find(text.back()) != TextView::npos) text.remove_suffix(1);
  return text;
}

Text lower(TextView text) {
  Text out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) append_lower(out, text, i);
  return out;
}

Text upper(TextView text) {
  Text out;
  out.reserve(text.size());
  for (const char32_t c : text) append_mapped(out, c, kUpperRuns, kUpperSpecials);
  return out;
}

Text capitalize(TextView text) {
  Text out;
  if (text.empty()) return out;
  out.reserve(text.size());
  append_mapped(out, text[0], kTitleRuns, kTitleSpecials);
  for (std::size_t i = 1; i < text.size(); ++i) append_lower(out, text, i);
  return out;
}

std::vector<TextView> split_whitespace(TextView text) {
  std::vector<TextView> parts;
  for (std::size_t i = 0; i < text.size();) {
    while (i < text.size() && is_space(text[i])) ++i;
    const std::size_t start = i;
    while (i < text.size() && !is_space(text[i])) ++i;
    if (i > start) parts.push_back(text.substr(start, i - start));
  }
  return parts;
}

Text collapse_whitespace(TextView text) {
  Text out;
  for (const TextView part : split_whitespace(text)) {
    if (!out.empty()) out.push_back(U' ');
    out.append(part);
  }
  return out;
}

Text replace_all(TextView text, TextView from, TextView to) {
  Text out;
  out.reserve(text.size());
  for (std::size_t at = 0;;) {
    const std::size_t found = text.find(from, at);
    if (found == TextView::npos) return out.append(text.substr(at));
    out.append(text.substr(at, found - at)).append(to);
    at = found + from.size();
  }
}

bool contains(TextView text, TextView part) { return text.find(part) != TextView::npos; }

std::string repr(std::string_view utf8) {
  const Text text = decode_utf8(utf8);
  const bool use_double = contains(text, U"'") && !contains(text, U"\"");
  const char32_t quote = use_double ? U'"' : U'\'';
  static constexpr std::string_view kHex = "0123456789abcdef";
  const auto append_hex = [](std::string& out, char32_t c, int digits) {
    for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) {
      out.push_back(kHex[(c >> static_cast<unsigned>(shift)) & 0xFU]);
    }
  };
  std::string out(1, static_cast<char>(quote));
  for (const char32_t c : text) {
    if (c == quote || c == U'\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    } else if (c == U'\n') {
      out += "\\n";
    } else if (c == U'\r') {
      out += "\\r";
    } else if (c == U'\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      out += encode_utf8(TextView(&c, 1));
    } else if (c < 0x100) {
      out += "\\x";
      append_hex(out, c, 2);
    } else if (c < 0x10000) {
      out += "\\u";
      append_hex(out, c, 4);
    } else {
      out += "\\U";
      append_hex(out, c, 8);
    }
  }
  out.push_back(static_cast<char>(quote));
  return out;
}

std::string strip_utf8(std::string_view utf8) {
  const Text text = decode_utf8(utf8);
  return encode_utf8(strip(text));
}

std::string strip_reasoning_tags(std::string_view utf8) {
  static constexpr std::array<std::array<std::string_view, 2>, 2> kPairs = {
      {{"<think>", "</think>"}, {"<analysis>", "</analysis>"}}};
  std::string text(utf8);
  for (const auto& [start_tag, end_tag] : kPairs) {
    for (;;) {
      const std::size_t start = text.find(start_tag);
      if (start == std::string::npos) break;
      const std::size_t end = text.find(end_tag, start);
      if (end == std::string::npos) break;
      text.erase(start, end + end_tag.size() - start);
    }
    if (text.find(start_tag) == std::string::npos) {
      const std::size_t last = text.rfind(end_tag);
      if (last != std::string::npos) text.erase(0, last + end_tag.size());
    }
  }
  return strip_utf8(text);
}

}  // namespace evalcar::metrics
