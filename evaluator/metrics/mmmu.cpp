#include "evaluator/metrics/mmmu.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "evaluator/metrics/python_number.h"
#include "evaluator/metrics/python_text.h"

namespace evalcar::metrics {
namespace {

constexpr std::size_t kNone = TextView::npos;

Text letter(std::size_t index) { return Text(1, static_cast<char32_t>(U'A' + index)); }

std::vector<std::size_t> letters_in(TextView response, std::size_t count, TextView before,
                                    TextView behind) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < count; ++i) {
    if (contains(response, Text(before) + letter(i) + Text(behind))) found.push_back(i);
  }
  return found;
}

// Where the candidate stands last, -1 if nowhere: numpy's argmax over these takes the first of the
// largest.
long last_position(TextView response, TextView part) {
  const std::size_t at = response.rfind(part);
  return at == kNone ? -1 : static_cast<long>(at);
}

bool is_word_at(TextView text, std::size_t at) { return at < text.size() && is_word(text[at]); }
bool is_digit_at(TextView text, std::size_t at) { return at < text.size() && is_decimal(text[at]); }
bool is_boundary(TextView text, std::size_t at) {
  return (at > 0 && is_word_at(text, at - 1)) != is_word_at(text, at);
}
std::size_t skip_digits(TextView text, std::size_t at) {
  while (is_digit_at(text, at)) ++at;
  return at;
}

// -?\b\d{1,3}(?:,\d{3})+\b
std::size_t match_with_commas(TextView text, std::size_t at) {
  if (text[at] == U'-') ++at;
  if (!is_boundary(text, at)) return kNone;
  std::size_t most = 0;
  while (most < 3 && is_digit_at(text, at + most)) ++most;
  for (std::size_t digits = most; digits > 0; --digits) {
    std::vector<std::size_t> ends;
    std::size_t end = at + digits;
    while (end < text.size() && text[end] == U',' && is_digit_at(text, end + 1) &&
           is_digit_at(text, end + 2) && is_digit_at(text, end + 3)) {
      end += 4;
      ends.push_back(end);
    }
    for (auto it = ends.rbegin(); it != ends.rend(); ++it) {
      if (is_boundary(text, *it)) return *it;
    }
  }
  return kNone;
}

// [eE][+-]?\d+
std::size_t match_exponent(TextView text, std::size_t at) {
  if (at >= text.size() || (text[at] != U'e' && text[at] != U'E')) return kNone;
  ++at;
  if (at < text.size() && (text[at] == U'+' || text[at] == U'-')) ++at;
  return is_digit_at(text, at) ? skip_digits(text, at) : kNone;
}

// -?\d+(?:\.\d+)?[eE][+-]?\d+
std::size_t match_scientific(TextView text, std::size_t at) {
  if (text[at] == U'-') ++at;
  if (!is_digit_at(text, at)) return kNone;
  at = skip_digits(text, at);
  if (at < text.size() && text[at] == U'.' && is_digit_at(text, at + 1))
    at = skip_digits(text, at + 1);
  return match_exponent(text, at);
}

// -?(?:\d+\.\d+|\.\d+|\d+\b)(?![eE][+-]?\d+)(?![,\d])
std::size_t match_simple(TextView text, std::size_t at) {
  if (text[at] == U'-') ++at;
  const auto allowed = [&](std::size_t end) {
    return match_exponent(text, end) == kNone &&
           !(end < text.size() && (text[end] == U',' || is_digit_at(text, end)));
  };
  const std::size_t whole = skip_digits(text, at);
  if (whole < text.size() && text[whole] == U'.' && is_digit_at(text, whole + 1)) {
    const std::size_t end = skip_digits(text, whole + 1);
    if (allowed(end)) return end;
  }
  if (whole > at && is_boundary(text, whole) && allowed(whole)) return whole;
  return kNone;
}

template <typename Match>
void find_all(TextView text, Match match, std::vector<Text>& out) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = match(text, at);
    if (end == kNone) {
      ++at;
    } else {
      out.emplace_back(text.substr(at, end - at));
      at = end;
    }
  }
}

using Candidate = std::variant<Text, double>;

void append_normalised(std::vector<Candidate>& out, TextView text) {
  text = strip(text);
  if (const auto number = parse_float(replace_all(text, U",", U""))) {
    out.emplace_back(round_to(*number, 2));
    return;
  }
  const Text lowered = lower(text);
  if (lowered.size() == 1) {
    out.emplace_back(U" " + lowered);
    out.emplace_back(lowered + U" ");
  } else {
    out.emplace_back(lowered);
  }
}

bool is_trivial(TextView text) { return text.size() == 1 && contains(U":,.!?;'", text); }

// The shortest text behind the last occurrence of an indicator; empty if there is none.
Text key_of_line(TextView line, bool is_last) {
  static constexpr std::array<TextView, 9> kIndicators = {U"could be ", U"so ",        U"is ",
                                                          U"thus ",     U"therefore ", U"final ",
                                                          U"answer ",   U"result ",    U"="};
  Text shortest;
  for (std::size_t i = 0; i < kIndicators.size() - (is_last ? 0 : 1); ++i) {
    const std::size_t at = line.rfind(kIndicators[i]);
    if (at == kNone) continue;
    const TextView tail = strip(line.substr(at + kIndicators[i].size()));
    if (shortest.empty() || tail.size() < shortest.size()) shortest = Text(tail);
  }
  return shortest;
}

// str.split(indicator)[-1] is what follows the last occurrence found from the left, without
// overlaps; no indicator overlaps itself, so rfind gives the same.
std::vector<Text> key_responses(TextView raw) {
  const Text response = lower(strip_characters(strip(raw), U"."));
  std::vector<Text> keys;
  for (std::size_t start = 0;;) {
    const std::size_t end = response.find(U'\n', start);
    const bool last = end == Text::npos;
    const TextView line = TextView(response).substr(start, last ? kNone : end - start);
    const Text key = key_of_line(line, last);
    if (!key.empty() && !is_trivial(key)) keys.push_back(key);
    if (last) break;
    start = end + 1;
  }
  if (keys.empty()) keys.push_back(response);
  return keys;
}

}  // namespace

std::string option_letter(std::size_t index) { return encode_utf8(letter(index)); }

std::optional<std::size_t> parse_multiple_choice(std::string_view utf8,
                                                 std::span<const std::string> options) {
  const Text decoded = decode_utf8(utf8);
  TextView stripped = decoded;
  for (const char32_t c : {U',', U'.', U'!', U'?', U';', U':', U'\''})
    stripped = strip_characters(stripped, TextView(&c, 1));
  const Text response = U" " + Text(stripped) + U" ";

  bool in_brackets = true;
  bool by_text = false;
  std::vector<std::size_t> candidates = letters_in(response, options.size(), U"(", U")");
  if (candidates.empty()) {
    in_brackets = false;
    candidates = letters_in(response, options.size(), U"", U" ");
  }
  if (candidates.empty()) candidates = letters_in(response, options.size(), U"", U".");
  const Text lowered = lower(response);
  if (candidates.empty() && split_whitespace(response).size() > 5) {
    by_text = true;
    for (std::size_t i = 0; i < options.size(); ++i) {
      if (contains(lowered, lower(decode_utf8(options[i])))) candidates.push_back(i);
    }
  }
  if (candidates.empty()) return std::nullopt;
  if (candidates.size() == 1) return candidates[0];

  std::size_t best = candidates[0];
  long best_position = -2;
  for (const std::size_t candidate : candidates) {
    long position = 0;
    if (by_text) {
      position = last_position(lowered, lower(decode_utf8(options[candidate])));
    } else if (in_brackets) {
      position = last_position(response, U"(" + letter(candidate) + U")");
    } else {
      position = last_position(response, U" " + letter(candidate) + U" ");
    }
    if (position > best_position) {
      best_position = position;
      best = candidate;
    }
  }
  return best;
}

std::vector<OpenCandidate> parse_open_response(std::string_view utf8) {
  const std::vector<Text> keys = key_responses(decode_utf8(utf8));
  std::vector<Text> texts = keys;
  for (const Text& key : keys) {
    find_all(key, match_with_commas, texts);
    find_all(key, match_scientific, texts);
    find_all(key, match_simple, texts);
  }
  std::vector<Candidate> candidates;
  for (const Text& text : texts) append_normalised(candidates, text);

  std::vector<OpenCandidate> result;
  std::vector<Candidate> seen;
  for (const Candidate& candidate : candidates) {
    if (std::find(seen.begin(), seen.end(), candidate) != seen.end()) continue;
    seen.push_back(candidate);
    if (const auto* text = std::get_if<Text>(&candidate)) {
      result.emplace_back(encode_utf8(*text));
    } else {
      result.emplace_back(std::get<double>(candidate));
    }
  }
  return result;
}

bool open_answer_is_correct(std::span<const std::string> gold,
                            std::span<const OpenCandidate> candidates) {
  std::vector<Candidate> wanted;
  for (const std::string& answer : gold) append_normalised(wanted, decode_utf8(answer));
  for (const OpenCandidate& candidate : candidates) {
    for (const Candidate& answer : wanted) {
      if (const auto* text = std::get_if<std::string>(&candidate)) {
        const auto* part = std::get_if<Text>(&answer);
        if (part != nullptr && contains(decode_utf8(*text), *part)) return true;
      } else if (const auto* number = std::get_if<double>(&answer)) {
        if (*number == std::get<double>(candidate)) return true;
      }
    }
  }
  return false;
}

std::optional<std::string> subject_of_id(std::string_view id) {
  // ^<first piece>_(.+?)_\d+$ with the shortest group: as the digits go to the end, it ends at the
  // last underscore.
  const Text text = decode_utf8(id);
  const std::size_t first = text.find(U'_');
  const std::size_t last = text.rfind(U'_');
  if (first == Text::npos || last <= first + 1) return std::nullopt;
  TextView number = TextView(text).substr(last + 1);
  if (!number.empty() && number.back() == U'\n')
    number.remove_suffix(1);  // $ also matches before a last newline
  if (number.empty() || !std::all_of(number.begin(), number.end(), is_decimal)) return std::nullopt;
  const TextView subject = TextView(text).substr(first + 1, last - first - 1);
  if (contains(subject, U"\n")) return std::nullopt;
  return encode_utf8(subject);
}

}  // namespace evalcar::metrics
