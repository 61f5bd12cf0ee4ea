// Means and standard errors: lmms-eval's, and a bootstrap of our own for what it gives no error bar
// for.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace evalcar::metrics {

/// Σ/n, added in order. NaN for nothing.
double mean(std::span<const double> values);

/// lmms-eval's mean_stderr: sample standard deviation (n - 1) over √n. Absent for n < 2.
std::optional<double> sample_stderr(std::span<const double> values);

/// lmms-eval's `_stderr_clt`: the same number in numpy's order of additions. Absent for n < 2.
std::optional<double> clt_stderr(std::span<const double> values);

/// Clustered standard error (Miller, "Adding Error Bars to Evals", arXiv 2411.00640, equation 4).
/// `clusters[i]` is the cluster of values[i]. Absent for n < 2 or a single cluster.
std::optional<double> clustered_stderr(std::span<const double> values,
                                       std::span<const std::string> clusters);

/// Σ values / Σ weights, added in order. NaN for nothing.
double ratio(std::span<const double> values, std::span<const double> weights);

/// Standard error of ratio() over documents that differ in weight (a loss per token): that of its
/// linearisation, the values less ratio · weights, summed by cluster (Cochran, Sampling Techniques,
/// 6.3; the clustered error above, with tokens as the samples). Absent for fewer than two clusters.
std::optional<double> ratio_stderr(std::span<const double> values, std::span<const double> weights,
                                   std::span<const std::string> clusters);

/// Python's statistics.mean: the exact sum over n, rounded once. For 0 <= values <= 1 and at most
/// 1,024 of them; beyond that it is mean().
double exact_mean(std::span<const double> values);

/// Standard deviation of the mean over `draws` resamples of n out of n with replacement. Draw d
/// takes its indices from SplitMix64 of (seed, d, position): any draw can be computed alone, in any
/// order. Absent for n < 2 or draws < 2.
std::optional<double> bootstrap_stderr(std::span<const double> values, std::int64_t draws,
                                       std::uint64_t seed);

/// The same of a sum of means, each of a group of its own: every draw resamples within each group.
/// Absent for no group, and where one has fewer than two values: how far it would spread is not
/// known.
std::optional<double> bootstrap_stderr_of_sum(std::span<const std::vector<double>> groups,
                                              std::int64_t draws, std::uint64_t seed);

}  // namespace evalcar::metrics
