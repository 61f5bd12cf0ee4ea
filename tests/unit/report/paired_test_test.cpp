#include "agent/report/paired_test.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <vector>

using Catch::Approx;
using evalcar::report::paired_test;
using evalcar::report::PairedTest;

namespace {

/// Both right 10 times, both wrong 5 times, `won` times only b, `lost` times only a.
PairedTest of_answers(int won, int lost) {
  std::vector<double> a(10, 1);
  std::vector<double> b(10, 1);
  a.resize(15, 0);
  b.resize(15, 0);
  for (int i = 0; i < won; ++i) a.push_back(0), b.push_back(1);
  for (int i = 0; i < lost; ++i) a.push_back(1), b.push_back(0);
  return paired_test(a, b);
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
  CHECK(of_answers(10, 2).mean_difference == Approx(8.0 / 27));
}

TEST_CASE("nothing that changed, or as much in both ways, is no difference at all") {
  CHECK(of_answers(0, 0).p == 1);
  CHECK(of_answers(7, 7).p == 1);
  CHECK(paired_test({}, {}).p == 1);
  CHECK_FALSE(paired_test({}, {}).stderr_value.has_value());
  const std::vector<double> same = {0.25, 0.5};
  CHECK(paired_test(same, same).p == 1);
}

TEST_CASE("other scores are tested by throwing all signs of their differences") {
  // scipy: permutation_test((d,), np.sum, permutation_type="samples", n_resamples=inf)
  const std::vector<double> a(9, 0.0);
  const std::vector<double> b = {0.5, -0.25, 0.75, 1.0, 0.5, -0.5, 0.25, 0, 0};
  const PairedTest test = paired_test(a, b);
  CHECK(test.name == "sign-flip permutation");
  CHECK(test.p == Approx(0.21875).epsilon(1e-12));
  CHECK(test.n == 9);
  CHECK(test.mean_difference == Approx(0.25));
}

TEST_CASE("many differences are tested by draws, the same at each call, near the exact value") {
  // 40 times +0.5, 20 times -0.5: the binomial test of 20 in 60, two-sided, is 0.013487.
  std::vector<double> a(60, 0.5);
  std::vector<double> b(40, 1.0);
  b.resize(60, 0.0);
  const double p = paired_test(a, b).p;
  CHECK(p == Approx(0.013487).margin(0.002));
  CHECK(p == paired_test(a, b).p);
}

TEST_CASE("the error of a mean difference is that of its pairs") {
  const std::vector<double> a(7, 0.0);
  const std::vector<double> b = {0.5, -0.25, 0.75, 1.0, 0.5, -0.5, 0.25};
  // numpy: std(d, ddof=1) / sqrt(7)
  CHECK(paired_test(a, b).stderr_value.value_or(0) == Approx(0.20203050891044214).epsilon(1e-12));
  const std::vector<double> zeros(1, 0.0);
  CHECK_FALSE(paired_test(zeros, zeros).stderr_value.has_value());
}
