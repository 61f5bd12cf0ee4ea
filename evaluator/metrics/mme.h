// MME's scorer: yes or no to two questions about each picture, added up by category. As lmms-eval
// 0.7.3's tasks/mme/utils.py. Pure and thread-safe.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace evalcar::metrics {

/// "yes", "no" or "other": of an answer of more than one character the first four decide.
std::string mme_label(std::string_view answer);

/// The reference answer as a label; absent where it is neither yes nor no.
std::optional<std::string> mme_gold(std::string_view answer);

/// Whether a category counts for perception; every other one counts for cognition.
bool is_mme_perception(std::string_view category);

/// One scored answer.
struct MmeAnswer {
  std::string category;
  std::string picture;  ///< question_id: what the two questions of a pair share
  double score = 0;     ///< 1 or 0
};

struct MmeScore {
  /// The sum over the categories, in order of appearance, of the mean over their pictures of
  /// 100 · (share of right answers) + 100 if both are right. Absent where `missing` says why.
  std::optional<double> value;
  std::string missing;
  /// The pictures' points of each category: what the value is a sum of means of.
  std::vector<std::vector<double>> points;
};

/// A picture that has not exactly two answers leaves no value: lmms-eval ends with an assertion.
MmeScore mme_score(std::span<const MmeAnswer> answers);

}  // namespace evalcar::metrics
