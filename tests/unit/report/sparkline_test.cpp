#include "agent/report/sparkline.h"

#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <vector>

using namespace evalcar::report;

TEST_CASE("a sparkline goes from the smallest to the largest value") {
  CHECK(sparkline(std::vector<double>{0, 0.5, 1}) == "▁▅█");
  CHECK(sparkline(std::vector<double>{3, 2, 1}) == "█▅▁");
  CHECK(sparkline(std::vector<double>{0.2, 0.2}) == "▅▅");
  CHECK(sparkline({}).empty());
}

TEST_CASE("a long series is shown by means of neighbours") {
  const std::vector<double> steps = {0, 0, 10, 10, 20, 20, 70, 70};
  CHECK(sparkline(steps, 4) == "▁▂▃█");
  CHECK(sparkline(std::vector<double>(1000, 1.0), 24).size() == 24 * 3);
}

TEST_CASE("a bar is full at one and never longer") {
  CHECK(bar(0, 4) == "[----]");
  CHECK(bar(0.5, 4) == "[##--]");
  CHECK(bar(1, 4) == "[####]");
  CHECK(bar(7, 4) == "[####]");
  CHECK(bar(-1, 4) == "[----]");
  CHECK(bar(std::numeric_limits<double>::quiet_NaN(), 4) == "[----]");
}
