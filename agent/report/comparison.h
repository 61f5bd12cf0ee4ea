// Two evaluations of one task, question by question: which answers changed, and whether the
// difference of their scores is more than luck.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/report/paired_test.h"
#include "store/base/result.h"
#include "store/state/reader.h"

namespace evalcar::report {

/// A question that one of the two answered right and the other did not.
struct Flip {
  std::int64_t doc_id = 0;
  double score_a = 0;
  double score_b = 0;
  std::string answer_a;  ///< at most kMostAnswerBytes, as the two below
  std::string answer_b;
  std::string expected;
};
inline constexpr std::size_t kMostAnswerBytes = 400;

struct Comparison {
  /// Absent: no sample of the two is of the same question (`note` says why), or `untested`.
  std::optional<PairedTest> test;
  bool is_whole = false;  ///< each sample that tells the metric has its partner
  /// The metric over all samples of either side that tell it; 0 where none does.
  double value_a = 0;
  double value_b = 0;
  std::string note;  ///< also where only some samples have a partner: the test is of those alone
  std::string untested;  ///< why samples that have partners cannot be tested; "" where they are
  std::vector<Flip> became_right;
  std::vector<Flip> became_wrong;
};

/// Pairs the logged samples of `task` in the evaluations `a` and `b` by doc_id; a pair must have
/// the same prompt, the same expected answer and the same number of tokens, words or bytes where
/// these weigh it, so that a changed data set or prompt pairs with nothing. Questions about the
/// same pictures are one group of the test; of a task with `[columns] cluster` there is none. Flips
/// are by doc_id. `metric` as in the view `metrics`.
Result<Comparison> compare_samples(const state::Reader& reader, std::int64_t a, std::int64_t b,
                                   const std::string& task, const std::string& metric);

}  // namespace evalcar::report
