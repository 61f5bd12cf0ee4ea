#include "agent/report/paired_test.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace evalcar::report {
namespace {

constexpr std::size_t kMostTriedSigns = 16;
constexpr std::size_t kMostDraws = 100000;
constexpr std::size_t kLeastDraws = 2000;
/// Additions that one test may cost: about a tenth of a second.
constexpr std::size_t kWork = 100'000'000;

bool right_or_wrong(std::span<const double> scores) {
  return std::all_of(scores.begin(), scores.end(),
                     [](double score) { return score == 0 || score == 1; });
}

/// P(X <= k) for X ~ Binomial(n, 1/2). By logarithms: 2^-n alone would be 0 from n = 1,075 on.
double half_binomial_tail(std::size_t k, std::size_t n) {
  const auto log_term = [n](std::size_t i) {
    const auto of = [](std::size_t x) { return std::lgamma(static_cast<double>(x) + 1); };
    return of(n) - of(i) - of(n - i) - static_cast<double>(n) * std::log(2.0);
  };
  double tail = 0;
  for (std::size_t i = 0; i <= k; ++i) tail += std::exp(log_term(i));
  return tail;
}

double mcnemar(std::span<const double> a, std::span<const double> b) {
  std::size_t lost = 0;
  std::size_t won = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    lost += a[i] > b[i] ? 1 : 0;
    won += a[i] < b[i] ? 1 : 0;
  }
  if (lost == won) return 1;
  return std::min(1.0, 2 * half_binomial_tail(std::min(lost, won), lost + won));
}

/// Steele, Lea, Flood 2014: a counter through a mixer, so that draw number d is known at once.
std::uint64_t split_mix(std::uint64_t counter) {
  std::uint64_t z = (counter + 1) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31U);
}

/// The sum with the sign of difference i by bit i of `word(i / 64)`.
template <typename Word>
double signed_sum(const std::vector<double>& differences, const Word& word) {
  double sum = 0;
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < differences.size(); ++i) {
    if (i % 64 == 0) bits = word(i / 64);
    sum += (bits & 1U) != 0 ? differences[i] : -differences[i];
    bits >>= 1U;
  }
  return sum;
}

double sign_flip(const std::vector<double>& differences) {
  const std::size_t n = differences.size();
  if (n == 0) return 1;
  double seen = 0;
  double size = 0;
  for (const double difference : differences) {
    seen += difference;
    size += std::abs(difference);
  }
  // Sums of the same numbers in another order differ in their last bits.
  const double least = std::abs(seen) - 1e-12 * size;
  const bool all = n <= kMostTriedSigns;
  const std::size_t draws =
      all ? std::size_t{1} << n : std::clamp(kWork / n, kLeastDraws, kMostDraws);
  const std::size_t words = (n + 63) / 64;
  std::size_t hits = 0;
  for (std::size_t draw = 0; draw < draws; ++draw) {
    const double sum = signed_sum(differences, [&](std::size_t word) {
      return all ? std::uint64_t{draw} : split_mix(draw * words + word);
    });
    hits += std::abs(sum) >= least ? 1 : 0;
  }
  const double extra = all ? 0 : 1;  // what was seen is one of the ways
  return (static_cast<double>(hits) + extra) / (static_cast<double>(draws) + extra);
}

}  // namespace

PairedTest paired_test(std::span<const double> a, std::span<const double> b) {
  PairedTest test;
  test.n = a.size();
  std::vector<double> differences;
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += b[i] - a[i];
    if (b[i] != a[i]) differences.push_back(b[i] - a[i]);
  }
  const auto n = static_cast<double>(test.n);
  if (test.n > 0) test.mean_difference = sum / n;
  if (test.n > 1) {
    // Pairs that do not differ have the difference 0.
    double squares =
        (n - static_cast<double>(differences.size())) * test.mean_difference * test.mean_difference;
    for (const double difference : differences) {
      squares += (difference - test.mean_difference) * (difference - test.mean_difference);
    }
    test.stderr_value = std::sqrt(squares / (n - 1) / n);
  }
  const bool binary = right_or_wrong(a) && right_or_wrong(b);
  test.name = binary ? "exact McNemar" : "sign-flip permutation";
  test.p = binary ? mcnemar(a, b) : sign_flip(differences);
  return test;
}

}  // namespace evalcar::report
