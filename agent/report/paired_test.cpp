#include "agent/report/paired_test.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

namespace evalcar::report {
namespace {

constexpr std::size_t kMostTriedSigns = 16;
constexpr std::size_t kMostDraws = 100000;
constexpr std::size_t kLeastDraws = 2000;
/// Additions that one test may cost: about a tenth of a second.
constexpr std::size_t kWork = 100'000'000;

bool is_right_or_wrong(const PairedPart& part) {
  const auto is_either = [](double score) { return score == 0 || score == 1; };
  return is_either(part.a) && is_either(part.b) && part.weight == 1;
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

double mcnemar(std::span<const PairedPart> parts) {
  std::size_t lost = 0;
  std::size_t won = 0;
  for (const PairedPart& part : parts) {
    lost += part.a > part.b ? 1 : 0;
    won += part.a < part.b ? 1 : 0;
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

/// What both sides have in all.
struct Sums {
  double a = 0, b = 0, weight = 0;
};

/// Of each group the sum of `of`.
template <typename Of>
std::map<std::size_t, double> by_group(std::span<const PairedPart> parts, const Of& of) {
  std::map<std::size_t, double> sums;
  for (const PairedPart& part : parts) sums[part.group] += of(part);
  return sums;
}

double standard_error(std::span<const PairedPart> parts, const Sums& all, Scale scale) {
  const double ratio_a = all.a / all.weight, ratio_b = all.b / all.weight;
  const double slope_a = slope_of(scale, ratio_a), slope_b = slope_of(scale, ratio_b);
  double squares = 0;
  const auto rests = by_group(parts, [&](const PairedPart& part) {
    return slope_b * (part.b - ratio_b * part.weight) - slope_a * (part.a - ratio_a * part.weight);
  });
  for (const auto& [group, rest] : rests) squares += rest * rest;
  const auto groups = static_cast<double>(rests.size());
  return std::sqrt(groups / (groups - 1) * squares) / all.weight;
}

}  // namespace

PairedTest paired_test(std::span<const PairedPart> parts, Scale scale) {
  PairedTest test;
  test.n = parts.size();
  Sums all;
  for (const PairedPart& part : parts) {
    all.a += part.a;
    all.b += part.b;
    all.weight += part.weight;
  }
  std::vector<double> differences;
  for (const auto& [group, sum] :
       by_group(parts, [](const PairedPart& part) { return part.b - part.a; })) {
    ++test.groups;
    if (sum != 0) differences.push_back(sum);
  }
  if (test.n > 0) {
    test.difference = scaled(scale, all.b / all.weight) - scaled(scale, all.a / all.weight);
  }
  if (test.groups > 1) test.stderr_value = standard_error(parts, all, scale);
  const bool exact = test.groups == test.n && std::ranges::all_of(parts, is_right_or_wrong);
  test.name = exact ? "exact McNemar" : "sign-flip permutation";
  test.p = exact ? mcnemar(parts) : sign_flip(differences);
  return test;
}

}  // namespace evalcar::report
