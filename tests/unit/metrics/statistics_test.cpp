#include "evaluator/metrics/statistics.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <string>
#include <vector>

using namespace evalcar::metrics;

TEST_CASE("a single value has no standard error") {
  const std::vector<double> one = {1};
  CHECK_FALSE(sample_stderr(one).has_value());
  CHECK_FALSE(clt_stderr(one).has_value());
  CHECK_FALSE(bootstrap_stderr(one, 1000, 0).has_value());
}

TEST_CASE("equal values have the standard error zero") {
  const std::vector<double> same(10, 0.5);
  CHECK(sample_stderr(same) == 0.0);
  CHECK(bootstrap_stderr(same, 1000, 0) == 0.0);
}

TEST_CASE("the exact mean of thirds is rounded once") {
  // statistics.mean gives 0.9666666666666667, adding up in floats 0.9666666666666666.
  std::vector<double> values(10, 1.0);
  values[0] = 2 / 3.0;
  CHECK(exact_mean(values) == 0.9666666666666667);
  CHECK(mean(values) == 0.9666666666666666);
}

TEST_CASE("one cluster has no clustered standard error") {
  const std::vector<double> values = {0, 1, 1};
  CHECK_FALSE(clustered_stderr(values, std::vector<std::string>{"a", "a", "a"}).has_value());
  CHECK(clustered_stderr(values, std::vector<std::string>{"a", "a", "b"}).has_value());
}

TEST_CASE("the bootstrap of one group's mean is that of its values") {
  const std::vector<std::vector<double>> one = {{0, 1, 1, 0, 1}};
  CHECK(bootstrap_stderr_of_sum(one, 500, 3) == bootstrap_stderr(one[0], 500, 3));
}

TEST_CASE("groups of a sum are drawn apart, and one with a single value leaves it unknown") {
  const std::vector<double> half = {0, 200, 0, 200, 0, 200, 0, 200};
  const auto alone = bootstrap_stderr(half, 20000, 0);
  const auto both = bootstrap_stderr_of_sum(std::vector{half, half}, 20000, 0);

  REQUIRE((alone.has_value() && both.has_value()));
  CHECK(*both / *alone > 1.38);  // the root of two: drawn together it would be two
  CHECK(*both / *alone < 1.45);
  CHECK_FALSE(bootstrap_stderr_of_sum(std::vector<std::vector<double>>{half, {100}}, 500, 0));
  CHECK_FALSE(bootstrap_stderr_of_sum({}, 500, 0));
}

TEST_CASE("the error of a ratio is that of a mean where all weigh alike, and counts clusters") {
  const std::vector<double> values = {1, 2, 4, 8};
  const std::vector<double> ones(4, 1.0);
  const std::vector<std::string> apart = {"a", "b", "c", "d"};

  CHECK(ratio(values, ones) == mean(values));
  CHECK(std::abs(*ratio_stderr(values, ones, apart) - *sample_stderr(values)) < 1e-15);
  // By hand: documents of 2 and 6 tokens, the ratio 1; differences -1 and 1; sqrt(2 · 2/1) / 8.
  CHECK(*ratio_stderr(std::vector<double>{1, 7}, std::vector<double>{2, 6},
                      std::vector<std::string>{"a", "b"}) == 0.25);
  CHECK_FALSE(ratio_stderr(values, ones, std::vector<std::string>(4, "a")).has_value());
}
