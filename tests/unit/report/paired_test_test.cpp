#include "agent/report/paired_test.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <vector>

using Catch::Approx;
using namespace evalcar::report;

namespace {

/// Of a mean, each question alone.
PairedTest of_scores(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<PairedPart> parts;
  for (std::size_t i = 0; i < a.size(); ++i)
    parts.push_back({.a = a[i], .b = b[i], .weight = 1, .group = i});
  return paired_test(parts);
}

/// Both right 10 times, both wrong 5 times, `won` times only b, `lost` times only a.
PairedTest of_answers(int won, int lost) {
  std::vector<double> a(10, 1);
  std::vector<double> b(10, 1);
  a.resize(15, 0);
  b.resize(15, 0);
  for (int i = 0; i < won; ++i) a.push_back(0), b.push_back(1);
  for (int i = 0; i < lost; ++i) a.push_back(1), b.push_back(0);
  return of_scores(a, b);
}

}  // namespace

// scipy 1.17.1: stats.binomtest(min(won, lost), won + lost).pvalue
TEST_CASE("right and wrong answers are tested by the exact binomial of those that changed") {
  CHECK(of_answers(10, 2).p == Approx(0.03857421875).epsilon(1e-12));
  CHECK(of_answers(2, 10).p == Approx(0.03857421875).epsilon(1e-12));
  CHECK(of_answers(480, 520).p == Approx(0.2174482932041415).epsilon(1e-9));
  CHECK(of_answers(1100, 900).p == Approx(8.45708953550381e-06).epsilon(1e-9));
  CHECK(of_answers(1000, 3000).p == Approx(2.491514538629926e-229).epsilon(1e-6));
  CHECK(of_answers(10, 2).name == "exact McNemar");
  CHECK(of_answers(10, 2).n == 27);
  CHECK(of_answers(10, 2).difference == Approx(8.0 / 27));
}

TEST_CASE("nothing that changed, or as much in both ways, is no difference at all") {
  CHECK(of_answers(0, 0).p == 1);
  CHECK(of_answers(7, 7).p == 1);
  CHECK(of_scores({}, {}).p == 1);
  CHECK_FALSE(of_scores({}, {}).stderr_value.has_value());
  const std::vector<double> same = {0.25, 0.5};
  CHECK(of_scores(same, same).p == 1);
}

TEST_CASE("other scores are tested by throwing all signs of their differences") {
  // scipy: permutation_test((d,), np.sum, permutation_type="samples", n_resamples=inf)
  const std::vector<double> a(9, 0.0);
  const std::vector<double> b = {0.5, -0.25, 0.75, 1.0, 0.5, -0.5, 0.25, 0, 0};
  const PairedTest test = of_scores(a, b);
  CHECK(test.name == "sign-flip permutation");
  CHECK(test.p == Approx(0.21875).epsilon(1e-12));
  CHECK(test.n == 9);
  CHECK(test.difference == Approx(0.25));
}

TEST_CASE("many differences are tested by draws, the same at each call, near the exact value") {
  // 40 times +0.5, 20 times -0.5: the binomial test of 20 in 60, two-sided, is 0.013487.
  std::vector<double> a(60, 0.5);
  std::vector<double> b(40, 1.0);
  b.resize(60, 0.0);
  const double p = of_scores(a, b).p;
  CHECK(p == Approx(0.013487).margin(0.002));
  CHECK(p == of_scores(a, b).p);
}

TEST_CASE("the error of a mean difference is that of its pairs") {
  const std::vector<double> a(7, 0.0);
  const std::vector<double> b = {0.5, -0.25, 0.75, 1.0, 0.5, -0.5, 0.25};
  // numpy: std(d, ddof=1) / sqrt(7)
  CHECK(of_scores(a, b).stderr_value.value_or(0) == Approx(0.20203050891044214).epsilon(1e-12));
  const std::vector<double> zeros(1, 0.0);
  CHECK_FALSE(of_scores(zeros, zeros).stderr_value.has_value());
}

TEST_CASE("a loss is tested by what its tokens lost in all, not by its documents' means") {
  // Eleven documents of one token lose 0.5 each, one of 1,000 tokens wins 0.1 a token.
  std::vector<PairedPart> parts;
  for (std::size_t i = 0; i < 11; ++i) parts.push_back({2.0, 2.5, 1, i});
  parts.push_back({2000, 1900, 1000, 11});

  const PairedTest test = paired_test(parts);

  CHECK(test.difference == Approx(-94.5 / 1011).epsilon(1e-12));
  CHECK(test.p == 1);  // no sign of the eleven changes whose sum is larger
  // numpy: d = b - a; e = (d - D * w) / w.sum(); sqrt(12 / 11 * (e**2).sum())
  CHECK(test.stderr_value.value_or(0) == Approx(0.007044175787406656).epsilon(1e-9));
}

TEST_CASE("a perplexity's error is that of its logarithm, at the perplexity") {
  // Mean log-likelihoods -2.5 and -2.4, differences spread by 0.2.
  std::vector<PairedPart> parts;
  for (std::size_t i = 0; i < 100; ++i)
    parts.push_back({2.5, 2.4 + (i % 2 == 0 ? 0.2 : -0.2), 1, i});

  const PairedTest test = paired_test(parts, Scale::kExponential);

  CHECK(test.difference == Approx(std::exp(2.4) - std::exp(2.5)).epsilon(1e-12));
  // exp(2.4) · 0.2 / √99
  CHECK(test.stderr_value.value_or(0) == Approx(std::exp(2.4) * 0.2 / std::sqrt(99.0)));
  CHECK(paired_test(parts, Scale::kBits).difference == Approx(-0.1 / std::log(2.0)));
}

TEST_CASE("questions about one picture are tested as one") {
  std::vector<PairedPart> parts;
  for (std::size_t i = 0; i < 1000; ++i)  // on six of 100 pages all ten answers became right
    parts.push_back({i < 60 ? 0.0 : 1.0, 1.0, 1, i / 10});

  const PairedTest test = paired_test(parts);

  CHECK(test.name == "sign-flip permutation");
  CHECK(test.n == 1000);
  CHECK(test.groups == 100);
  CHECK(test.p == Approx(2.0 / 64));
  // numpy: std of the pages' means of differences, ddof=1, / sqrt(100)
  CHECK(test.stderr_value.value_or(0) == Approx(0.02386832565759412).epsilon(1e-9));
}
