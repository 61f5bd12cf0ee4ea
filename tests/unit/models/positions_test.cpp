#include "evaluator/models/positions.h"

#include <catch2/catch_test_macros.hpp>

using namespace evalcar::models;

TEST_CASE("text counts on and a picture stands on its grid") {
  const std::vector<std::int32_t> tokens = {1, 2, 9, 9, 9, 9, 9, 9, 3};
  const std::vector<ImageGrid> grids = {{1, 4, 6}};  // 2 by 3 tokens

  const auto positions = mrope_positions(tokens, grids, 9, 2);

  REQUIRE(positions.has_value());
  CHECK(positions->axes[0] == std::vector<std::int64_t>{0, 1, 2, 2, 2, 2, 2, 2, 5});
  CHECK(positions->axes[1] == std::vector<std::int64_t>{0, 1, 2, 2, 2, 3, 3, 3, 5});
  CHECK(positions->axes[2] == std::vector<std::int64_t>{0, 1, 2, 3, 4, 2, 3, 4, 5});
  CHECK(positions->next == 6);
  CHECK(positions->images[0].first == 2);
}

TEST_CASE("two pictures without a word between them are two grids") {
  const std::vector<std::int32_t> tokens = {9, 9, 9};
  const std::vector<ImageGrid> grids = {{1, 2, 2}, {1, 2, 4}};

  const auto positions = mrope_positions(tokens, grids, 9, 2);

  REQUIRE(positions.has_value());
  CHECK(positions->axes[2] == std::vector<std::int64_t>{0, 1, 2});
  CHECK(positions->axes[1] == std::vector<std::int64_t>{0, 1, 1});
  CHECK(positions->next == 3);
}

TEST_CASE("placeholders and pictures that do not match are refused") {
  const std::vector<ImageGrid> one = {{1, 2, 4}};

  CHECK_FALSE(mrope_positions(std::vector<std::int32_t>{1, 9}, one, 9, 2).has_value());
  CHECK_FALSE(mrope_positions(std::vector<std::int32_t>{9, 1, 9}, one, 9, 2).has_value());
  CHECK_FALSE(mrope_positions(std::vector<std::int32_t>{1, 2}, one, 9, 2).has_value());
  CHECK_FALSE(mrope_positions(std::vector<std::int32_t>{9, 9, 9, 9}, one, 9, 2).has_value());
}

TEST_CASE("pictures that touch each other are told apart by their numbers of tokens") {
  const std::vector<std::int32_t> tokens = {9, 9, 9, 1, 9};

  const auto spans = image_spans(tokens, std::vector<std::int64_t>{1, 2, 1}, 9);

  REQUIRE(spans.has_value());
  REQUIRE(spans->size() == 3);
  CHECK((*spans)[1].first == 1);
  CHECK((*spans)[1].count == 2);
  CHECK((*spans)[2].first == 4);
  CHECK_FALSE(image_spans(tokens, std::vector<std::int64_t>{2, 2, 1}, 9).has_value());
  CHECK_FALSE(image_spans(tokens, std::vector<std::int64_t>{3}, 9).has_value());
  CHECK_FALSE(image_spans(tokens, std::vector<std::int64_t>{3, 1, 1}, 9).has_value());
}

TEST_CASE("a grid that does not merge has no tokens") {
  CHECK(*merged_tokens({1, 4, 6}, 2) == 6);
  for (const ImageGrid& grid : {ImageGrid{1, 3, 4}, {1, 4, 3}, {0, 4, 4}, {1, 0, 4}})
    CHECK_FALSE(merged_tokens(grid, 2).has_value());
}

TEST_CASE("words alone stand in a line") {
  const PromptPositions positions = line_positions(3);

  for (const auto& axis : positions.axes) CHECK(axis == std::vector<std::int64_t>{0, 1, 2});
  CHECK(positions.next == 3);
  CHECK(positions.images.empty());
}
