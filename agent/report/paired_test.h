// Is one checkpoint better than another, or was it luck? Both answered the same questions, so the
// difference of each question is looked at: far sharper than two error bars side by side.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "agent/report/sample_part.h"

namespace evalcar::report {

/// One question's parts on both sides.
struct PairedPart {
  double a = 0;
  double b = 0;
  double weight = 1;
  std::size_t group = 0;  ///< questions of one group (of one picture) are right or wrong together
};

struct PairedTest {
  /// "exact McNemar", where every score is 0 or 1 and each group one question; else "sign-flip
  /// permutation".
  std::string name;
  std::size_t n = 0;                   ///< pairs
  std::size_t groups = 0;              ///< of them
  double p = 1;                        ///< two-sided
  double difference = 0;               ///< of the metric, b - a
  std::optional<double> stderr_value;  ///< of that difference; absent for fewer than two groups
};

/// Whether the metric scaled(Σ a / Σ weight) differs from scaled(Σ b / Σ weight) by more than luck.
/// All finite, weights above 0. Pure: the same input gives the same p, also where it is drawn.
///
/// Exact McNemar: of the questions that only one side answered right, how likely is so uneven a
/// split if both sides were equally likely (binomial, two-sided: twice the smaller tail, at most
/// 1).
///
/// Sign-flip permutation: how often is the sum of the groups' differences at least as large if the
/// sign of each is thrown anew. All signs are tried for up to 16 differences that are not 0; above
/// that they are drawn (at most 100,000 times, and (1 + hits) / (1 + draws) is the p).
///
/// The standard error is that of a ratio of sums, by linearization, over groups (Cochran, Sampling
/// Techniques, 1977, 6.5): for weights of 1 and groups of one that of the mean of the differences.
PairedTest paired_test(std::span<const PairedPart> parts, Scale scale = Scale::kPlain);

}  // namespace evalcar::report
