#include "evaluator/metrics/statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

namespace evalcar::metrics {
namespace {

// numpy's pairwise summation (numpy/_core/src/umath/loops_utils.h.src): plain below 8, eight
// accumulators up to 128, halves (multiples of 8) above.
double pairwise_sum(std::span<const double> values) {
  const std::size_t n = values.size();
  if (n < 8) {
    double sum = n == 0 ? 0.0 : -0.0;
    for (const double v : values) sum += v;
    return sum;
  }
  if (n <= 128) {
    double r[8];
    std::copy_n(values.begin(), 8, r);
    std::size_t i = 8;
    for (; i < n - n % 8; i += 8) {
      for (std::size_t k = 0; k < 8; ++k) r[k] += values[i + k];
    }
    double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    for (; i < n; ++i) sum += values[i];
    return sum;
  }
  std::size_t half = n / 2;
  half -= half % 8;
  return pairwise_sum(values.first(half)) + pairwise_sum(values.subspan(half));
}

std::uint64_t splitmix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31U);
}

}  // namespace

double mean(std::span<const double> values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return values.empty() ? std::numeric_limits<double>::quiet_NaN()
                        : sum / static_cast<double>(values.size());
}

std::optional<double> sample_stderr(std::span<const double> values) {
  if (values.size() < 2) return std::nullopt;
  const double mu = mean(values);
  double squares = 0;
  for (const double v : values) squares += (v - mu) * (v - mu);
  const auto n = static_cast<double>(values.size());
  return std::sqrt(squares / (n - 1)) / std::sqrt(n);
}

std::optional<double> clt_stderr(std::span<const double> values) {
  if (values.size() < 2) return std::nullopt;
  const auto n = static_cast<double>(values.size());
  const double mu = pairwise_sum(values) / n;
  std::vector<double> squares;
  squares.reserve(values.size());
  for (const double v : values) squares.push_back((v - mu) * (v - mu));
  return std::sqrt(pairwise_sum(squares) / (n - 1)) / std::sqrt(n);
}

std::optional<double> clustered_stderr(std::span<const double> values,
                                       std::span<const std::string> clusters) {
  if (values.size() < 2 || values.size() != clusters.size()) return std::nullopt;
  const auto n = static_cast<double>(values.size());
  const double mu = mean(values);
  double squares = 0;
  std::map<std::string, std::pair<double, double>> of_cluster;  // Σ d, Σ d²
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double d = values[i] - mu;
    squares += d * d;
    auto& [sum, sum_of_squares] = of_cluster[clusters[i]];
    sum += d;
    sum_of_squares += d * d;
  }
  if (of_cluster.size() < 2) return std::nullopt;
  double cross = 0;
  for (const auto& [name, sums] : of_cluster) cross += sums.first * sums.first - sums.second;
  return std::sqrt(std::max(0.0, squares / (n - 1) / n + cross / (n * n)));
}

double ratio(std::span<const double> values, std::span<const double> weights) {
  double sum = 0;
  double weight = 0;
  for (const double v : values) sum += v;
  for (const double w : weights) weight += w;
  return weight > 0 ? sum / weight : std::numeric_limits<double>::quiet_NaN();
}

std::optional<double> ratio_stderr(std::span<const double> values, std::span<const double> weights,
                                   std::span<const std::string> clusters) {
  if (values.size() != weights.size() || values.size() != clusters.size()) return std::nullopt;
  const double mean_ratio = ratio(values, weights);
  double weight = 0;
  std::map<std::string, double> of_cluster;
  for (std::size_t i = 0; i < values.size(); ++i) {
    weight += weights[i];
    of_cluster[clusters[i]] += values[i] - mean_ratio * weights[i];
  }
  if (of_cluster.size() < 2 || !(weight > 0)) return std::nullopt;
  double squares = 0;
  for (const auto& [name, difference] : of_cluster) squares += difference * difference;
  const auto count = static_cast<double>(of_cluster.size());
  return std::sqrt(squares * count / (count - 1)) / weight;
}

double exact_mean(std::span<const double> values) {
  constexpr std::size_t kMost = 1024;
  const auto fits = [](double v) {
    return v >= 0 && v <= 1 && std::nearbyint(std::ldexp(v, 60)) == std::ldexp(v, 60);
  };
  if (values.empty() || values.size() > kMost || !std::all_of(values.begin(), values.end(), fits))
    return mean(values);
  // All values are multiples of 2^-60, so the sum of at most 2^10 of them fits in 71 bits. Scaled
  // by 2^50 more, its quotient by n has far more than 53 bits; what is cut off is remembered in the
  // lowest bit, and the result is rounded once.
  __extension__ using Wide = unsigned __int128;
  Wide sum = 0;
  for (const double v : values) sum += static_cast<Wide>(std::ldexp(v, 60));
  if (sum == 0) return 0;
  const Wide scaled = sum << 50U;
  const auto n = static_cast<Wide>(values.size());
  Wide quotient = scaled / n;
  const bool inexact = quotient * n != scaled;
  int exponent = -110;
  bool cut = inexact;
  while ((quotient >> 64U) != 0) {
    cut = cut || (quotient & 1U) != 0;
    quotient >>= 1U;
    ++exponent;
  }
  auto bits = static_cast<std::uint64_t>(quotient);
  const int shift = static_cast<int>(std::bit_width(bits)) - 53;
  if (shift > 0) {
    const std::uint64_t rest = bits & ((std::uint64_t{1} << static_cast<unsigned>(shift)) - 1);
    const std::uint64_t half = std::uint64_t{1} << static_cast<unsigned>(shift - 1);
    bits >>= static_cast<unsigned>(shift);
    exponent += shift;
    if (rest > half || (rest == half && (cut || (bits & 1U) != 0))) ++bits;
  }
  return std::ldexp(static_cast<double>(bits), exponent);
}

namespace {

// The mean of one resample. Its indices come from SplitMix64 of `base` and the position.
double mean_of_resample(std::span<const double> values, std::uint64_t base) {
  const std::uint64_t n = values.size();
  double sum = 0;
  for (std::uint64_t i = 0; i < n; i += 2) {
    const std::uint64_t word = splitmix64(base + i);
    sum += values[((word & 0xFFFFFFFFU) * n) >> 32U];
    if (i + 1 < n) sum += values[((word >> 32U) * n) >> 32U];
  }
  return sum / static_cast<double>(n);
}

bool can_be_resampled(std::span<const double> values) {
  return values.size() >= 2 && values.size() <= std::numeric_limits<std::uint32_t>::max();
}

// The sample standard deviation of `of_draw(0)`, `of_draw(1)`, …
template <typename OfDraw>
double spread(std::int64_t draws, OfDraw of_draw) {
  double running_mean = 0;  // Welford over the draws
  double running_squares = 0;
  for (std::int64_t d = 0; d < draws; ++d) {
    const double value = of_draw(d);
    const double delta = value - running_mean;
    running_mean += delta / static_cast<double>(d + 1);
    running_squares += delta * (value - running_mean);
  }
  return std::sqrt(running_squares / static_cast<double>(draws - 1));
}

}  // namespace

std::optional<double> bootstrap_stderr(std::span<const double> values, std::int64_t draws,
                                       std::uint64_t seed) {
  if (!can_be_resampled(values) || draws < 2) return std::nullopt;
  return spread(draws, [&](std::int64_t d) {
    return mean_of_resample(values, splitmix64(seed ^ splitmix64(static_cast<std::uint64_t>(d))));
  });
}

std::optional<double> bootstrap_stderr_of_sum(std::span<const std::vector<double>> groups,
                                              std::int64_t draws, std::uint64_t seed) {
  const bool possible =
      !groups.empty() && std::all_of(groups.begin(), groups.end(),
                                     [](const auto& group) { return can_be_resampled(group); });
  if (!possible || draws < 2) return std::nullopt;
  return spread(draws, [&](std::int64_t d) {
    std::uint64_t base = splitmix64(seed ^ splitmix64(static_cast<std::uint64_t>(d)));
    double sum = 0;
    for (const std::vector<double>& group : groups) {
      sum += mean_of_resample(group, base);
      base += group.size();  // the next group's positions follow this one's
    }
    return sum;
  });
}

}  // namespace evalcar::metrics
