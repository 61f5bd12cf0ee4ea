#include "evaluator/models/tower_order.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

using namespace evalcar::models;

TEST_CASE("windows of equal size stand together and every unit is restored") {
  const std::vector<ImageGrid> grids = {{1, 10, 6}};  // 5 by 3 units, windows of 2 by 2

  const TowerOrder order = tower_order(grids, 2, 2);

  REQUIRE(order.windows.size() == 3);
  CHECK(order.windows[0].count == 2);
  CHECK(order.windows[0].length == 16);
  CHECK(order.windows[1].count ==
        3);  // two of 2 by 1 at the right edge, one of 1 by 2 at the bottom
  CHECK(order.windows[1].length == 8);
  CHECK(order.windows[2].length == 4);  // the corner
  REQUIRE(order.frames.size() == 1);
  CHECK(order.frames[0].length == 60);
  for (std::size_t unit = 0; unit < order.unit_restore.size(); ++unit) {
    const auto place = static_cast<std::size_t>(order.unit_restore[unit]);
    CHECK(order.unit_order[place] == static_cast<std::int64_t>(unit));
  }
}

TEST_CASE("each block of a batch begins where the one before ends, in all runs of them") {
  const std::vector<ImageGrid> grids = {{1, 10, 6}, {1, 4, 4}};

  const TowerOrder order = tower_order(grids, 2, 2);

  using Begins = std::vector<std::int64_t>;
  CHECK(block_begins(order.windows) == Begins{0, 16, 32, 40, 48, 56, 60, 76});
  CHECK(block_begins(order.frames) == Begins{0, 60, 76});
  CHECK(block_begins({}).empty());
}

TEST_CASE("pictures of a batch never share a window or a frame") {
  const std::vector<ImageGrid> grids = {{1, 4, 4}, {1, 4, 8}};

  const TowerOrder order = tower_order(grids, 2, 4);

  REQUIRE(order.frames.size() == 2);
  CHECK(order.frames[0].first == 0);
  CHECK(order.frames[1].first == 16);
  REQUIRE(order.windows.size() == 2);
  CHECK(order.windows[1].first == 16);
  CHECK(std::ranges::max(order.patch_h) == 3);
  CHECK(std::ranges::max(order.patch_w) == 7);
}
