#include "evaluator/metrics/text_scorers.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <vector>

#include "evaluator/metrics/python_text.h"
#include "evaluator/metrics/statistics.h"

namespace evalcar::metrics {
namespace {

struct Replacement {
  TextView from;
  TextView to;
};

#include "evaluator/metrics/vqa_contractions.inc"

constexpr Replacement kNumbers[] = {
    {U"none", U"0"},  {U"zero", U"0"},  {U"one", U"1"},  {U"two", U"2"},
    {U"three", U"3"}, {U"four", U"4"},  {U"five", U"5"}, {U"six", U"6"},
    {U"seven", U"7"}, {U"eight", U"8"}, {U"nine", U"9"}, {U"ten", U"10"},
};

constexpr TextView kVqaPunctuation = U";/[]\"{}()=+\\_-><@`,?!";
constexpr TextView kPythonPunctuation = U"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
constexpr std::size_t kMostPeriods =
    32;  // lmms-eval passes re.UNICODE where re.sub expects a count

// A comma run between two digits anywhere: (?<=\d)(\,)+(?=\d).
bool has_comma_between_digits(TextView text) {
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (text[i] != U',' || !is_decimal(text[i - 1])) continue;
    std::size_t end = i;
    while (end < text.size() && text[end] == U',') ++end;
    if (end < text.size() && is_decimal(text[end])) return true;
  }
  return false;
}

Text process_punctuation(TextView text) {
  const bool digit_comma = has_comma_between_digits(text);
  Text out(text);
  for (const char32_t p : kVqaPunctuation) {
    const char32_t behind[] = {p, U' '};
    const char32_t before[] = {U' ', p};
    const bool remove =
        digit_comma || contains(text, TextView(behind, 2)) || contains(text, TextView(before, 2));
    out = replace_all(out, TextView(&p, 1), remove ? U"" : U" ");
  }
  Text result;
  std::size_t removed = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const bool period = out[i] == U'.' && !(i + 1 < out.size() && is_decimal(out[i + 1]));
    if (period && removed < kMostPeriods) {
      ++removed;
    } else {
      result.push_back(out[i]);
    }
  }
  return result;
}

TextView mapped_word(TextView word) {
  for (const Replacement& number : kNumbers) {
    if (number.from == word) return number.to;
  }
  return word;
}

TextView without_contraction(TextView word) {
  const auto found = std::lower_bound(std::begin(kContractions), std::end(kContractions), word,
                                      [](const Replacement& r, TextView w) { return r.from < w; });
  return found != std::end(kContractions) && found->from == word ? found->to : word;
}

Text process_digits_and_articles(TextView text) {
  const Text lowered = lower(text);
  Text out;
  bool first = true;
  for (const TextView word : split_whitespace(lowered)) {
    const TextView mapped = mapped_word(word);
    if (mapped == U"a" || mapped == U"an" || mapped == U"the") continue;
    if (!first) out.push_back(U' ');
    first = false;
    out.append(without_contraction(mapped));
  }
  return out;
}

Text vqa_processed(Text text) {
  text = replace_all(text, U"\n", U" ");
  text = replace_all(text, U"\t", U" ");
  return process_digits_and_articles(process_punctuation(strip(text)));
}

Text numpy_string(TextView text, std::size_t width) {
  text = text.substr(0, width);
  while (!text.empty() && text.back() == U'\0') text.remove_suffix(1);
  return Text(text);
}

Text without(TextView text, TextView characters) {
  Text out;
  std::copy_if(text.begin(), text.end(), std::back_inserter(out),
               [&](char32_t c) { return characters.find(c) == TextView::npos; });
  return out;
}

Text prepared_for_exact_match(std::string_view utf8, const ExactMatchOptions& options) {
  Text text = decode_utf8(utf8);
  const std::size_t width = std::max<std::size_t>(text.size(), 1);
  text = numpy_string(text, width);
  if (options.ignore_case) text = numpy_string(lower(text), width);
  if (options.ignore_punctuation) text = numpy_string(without(text, kPythonPunctuation), width);
  if (options.ignore_numbers) text = numpy_string(without(text, U"0123456789"), width);
  return text;
}

}  // namespace

std::size_t levenshtein(TextView a, TextView b) {
  if (a.size() > b.size()) std::swap(a, b);
  std::vector<std::size_t> row(a.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t j = 0; j < b.size(); ++j) {
    std::size_t diagonal = row[0];
    row[0] = j + 1;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const std::size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[i + 1];
      row[i + 1] = std::min({substituted, row[i] + 1, row[i + 1] + 1});
    }
  }
  return row.back();
}

std::optional<double> anls(std::span<const std::string> references, std::string_view prediction) {
  if (references.empty()) return std::nullopt;
  const Text raw_prediction = decode_utf8(prediction);
  const Text normal_prediction = collapse_whitespace(lower(strip(raw_prediction)));
  const std::size_t prediction_length = upper(raw_prediction).size();
  double best = 2;
  for (const std::string& reference : references) {
    const Text raw = decode_utf8(reference);
    const Text normal = collapse_whitespace(lower(strip(raw)));
    const std::size_t length = std::max(upper(raw).size(), prediction_length);
    const std::size_t distance = levenshtein(normal, normal_prediction);
    best = std::min(
        best, length == 0 ? 0.0 : static_cast<double>(distance) / static_cast<double>(length));
  }
  const double score = 1 - best;
  return score < 0.5 ? 0 : score;
}

double exact_match(std::span<const std::string> references, std::string_view prediction,
                   const ExactMatchOptions& options) {
  const Text wanted = prepared_for_exact_match(prediction, options);
  return std::any_of(
             references.begin(), references.end(),
             [&](const std::string& r) { return prepared_for_exact_match(r, options) == wanted; })
             ? 1.0
             : 0.0;
}

double contains_match(std::span<const std::string> references, std::string_view prediction,
                      bool ignore_case) {
  const Text raw = decode_utf8(prediction);
  const Text text = ignore_case ? lower(raw) : raw;
  for (const std::string& reference : references) {
    const Text part = decode_utf8(reference);
    if (contains(text, ignore_case ? lower(part) : part)) return 1;
  }
  return 0;
}

std::string vqa_normalise(std::string_view answer) {
  Text text = lower(decode_utf8(answer));
  text = replace_all(text, U",", U"");
  text = replace_all(text, U"?", U"");
  text = replace_all(text, U"'s", U" 's");
  return encode_utf8(vqa_processed(Text(strip(text))));
}

std::string vqav2_normalise(std::string_view answer) {
  return encode_utf8(vqa_processed(decode_utf8(answer)));
}

double vqa_accuracy(std::span<const std::string> answers, std::string_view prediction) {
  const std::string wanted = vqa_normalise(prediction);
  std::vector<bool> matches;
  for (const std::string& answer : answers) matches.push_back(vqa_normalise(answer) == wanted);
  std::vector<std::size_t> each(answers.size());
  std::iota(each.begin(), each.end(), std::size_t{0});
  return vqa_accuracy_of(matches, each);
}

double vqa_accuracy_of(const std::vector<bool>& matches, std::span<const std::size_t> groups) {
  std::map<std::size_t, std::size_t> in_group;
  std::size_t in_all = 0;
  for (std::size_t i = 0; i < matches.size(); ++i) {
    if (!matches[i]) continue;
    ++in_group[groups[i]];
    ++in_all;
  }
  std::vector<double> scores;
  for (const std::size_t group : groups) {
    const auto own = in_group.find(group);
    const std::size_t others = in_all - (own == in_group.end() ? 0 : own->second);
    scores.push_back(std::min(1.0, static_cast<double>(others) / 3));
  }
  return scores.empty() ? 0 : exact_mean(scores);
}

}  // namespace evalcar::metrics
