#include "evaluator/engine/graph_decoder.h"

#include <catch2/catch_test_macros.hpp>
#include <set>

using namespace evalcar::engine;

TEST_CASE("rows are filled up to one of two numbers in each doubling, never past the slots") {
  std::set<std::int64_t> numbers;
  for (std::int64_t rows = 1; rows <= 128; ++rows) {
    const std::int64_t padded = padded_rows(rows, 128);
    CHECK(padded >= rows);
    CHECK(2 * padded <= 3 * rows);
    numbers.insert(padded);
  }
  CHECK(numbers == std::set<std::int64_t>{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128});
  CHECK(padded_rows(5, 5) == 5);
  CHECK(padded_rows(9, 11) == 11);
}

TEST_CASE("there is room for a power of two of keys, never for more than a slot holds") {
  CHECK(padded_keys(1, 4096) == 128);
  CHECK(padded_keys(128, 4096) == 128);
  CHECK(padded_keys(129, 4096) == 256);
  CHECK(padded_keys(2049, 3000) == 3000);
  CHECK(padded_keys(3, 40) == 40);
}
