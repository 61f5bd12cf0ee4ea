// Scorers of one answer against its references, as lmms-eval 0.7.3 computes them. All take UTF-8,
// are pure and thread-safe.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace evalcar::metrics {

/// Average normalised Levenshtein similarity of DocVQA, threshold 0.5: 1 - min over the references
/// of distance / longer length; 0 below the threshold. Distance is over code points of the
/// lower-cased texts with runs of blanks collapsed, the length that of the upper-cased texts as
/// they are. Absent without references.
std::optional<double> anls(std::span<const std::string> references, std::string_view prediction);

/// Unit-cost edit distance in code points.
std::size_t levenshtein(std::u32string_view a, std::u32string_view b);

struct ExactMatchOptions {
  bool ignore_case = false;
  bool ignore_punctuation = false;  ///< deletes Python's string.punctuation
  bool ignore_numbers = false;      ///< deletes 0-9
};
/// 1 if any reference equals the prediction, else 0. As Hugging Face's exact_match, which compares
/// fixed-width numpy strings: lower-casing never makes a text longer than it was.
double exact_match(std::span<const std::string> references, std::string_view prediction,
                   const ExactMatchOptions& options);

/// 1 if any reference is a part of the prediction (lower-cased both if ignore_case), else 0. Ours.
double contains_match(std::span<const std::string> references, std::string_view prediction,
                      bool ignore_case);

/// The EvalAI answer processor: lower case, punctuation, number words, articles, contractions.
std::string vqa_normalise(std::string_view answer);

/// VQA accuracy: the mean over the answers i of min(1, (number of other answers equal to the
/// prediction) / 3), all normalised. `statistics.mean` of the same numbers: correctly rounded. 0
/// without answers.
double vqa_accuracy(std::span<const std::string> answers, std::string_view prediction);

/// What VQAv2's task compares: without the first step of vqa_normalise(), which takes commas and
/// question marks away before anything looks at them.
std::string vqav2_normalise(std::string_view answer);

/// The accuracy where it is known which answers match: of each, the matching ones of other `groups`
/// are counted. Answers of one group are equal in all that is known of them, which VQAv2's task
/// takes for one and the same.
double vqa_accuracy_of(const std::vector<bool>& matches, std::span<const std::size_t> groups);

}  // namespace evalcar::metrics
