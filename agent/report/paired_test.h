// Is one checkpoint better than another, or was it luck? Both answered the same questions, so the
// difference of each question is looked at: far sharper than two error bars side by side.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace evalcar::report {

struct PairedTest {
  /// "exact McNemar", where every score is 0 or 1; else "sign-flip permutation".
  std::string name;
  std::size_t n = 0;                   ///< pairs
  double p = 1;                        ///< two-sided
  double mean_difference = 0;          ///< of b - a
  std::optional<double> stderr_value;  ///< of that mean; absent for n < 2
};

/// Of a[i] and b[i], the scores of question i; same length, finite. Pure: the same input gives the
/// same p, also where it is drawn.
///
/// Exact McNemar: of the questions that only one of them answered right, how likely is so uneven a
/// split if both sides were equally likely (binomial, two-sided: twice the smaller tail, at most
/// 1).
///
/// Sign-flip permutation: how often is the sum of differences at least as large if the sign of each
/// is thrown anew. All signs are tried for up to 16 differences that are not 0; above that they are
/// drawn (at most 100,000 times, and (1 + hits) / (1 + draws) is the p).
PairedTest paired_test(std::span<const double> a, std::span<const double> b);

}  // namespace evalcar::report
