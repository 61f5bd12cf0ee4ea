#include "evaluator/metrics/python_random.h"

#include <catch2/catch_test_macros.hpp>
#include <vector>

using evalcar::metrics::PythonRandom;

// The numbers were written by CPython 3.11: random.seed(s); [random.choice(range(n)) for …].
TEST_CASE("random choice after seed zero draws CPython's letters") {
  PythonRandom random(0);

  std::vector<std::size_t> drawn;
  for (int i = 0; i < 12; ++i) drawn.push_back(random.choice(4));

  CHECK(drawn == std::vector<std::size_t>{3, 3, 0, 2, 3, 3, 2, 3, 2, 1, 1, 2});
}

TEST_CASE("random random after seed zero is CPython's to the last bit") {
  PythonRandom random(0);

  CHECK(random.random() == 0.8444218515250481);
  CHECK(random.random() == 0.7579544029403025);
}

TEST_CASE("a seed and its negative give the same numbers as in CPython") {
  PythonRandom plus(7);
  PythonRandom minus(-7);

  for (int i = 0; i < 2000; ++i) CHECK(plus.choice(10) == minus.choice(10));
}

TEST_CASE("a choice of one still draws words until the bit is zero") {
  PythonRandom random(0);

  CHECK(random.choice(1) == 0);
  CHECK(random.words_drawn() >= 1);
}
