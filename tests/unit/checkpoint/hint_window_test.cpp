// Which chunks the disk is told of ahead: each one once, in order, within the window, and without
// asking for the small ones again and again.
#include "store/checkpoint/hint_window.h"

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

using namespace evalcar::checkpoint;

namespace {

using Hints = std::vector<std::pair<std::size_t, std::size_t>>;

Hints hints_of(const std::vector<std::uint64_t>& bytes, std::uint64_t window) {
  HintWindow hints(bytes.size(), window, [&](std::size_t i) { return bytes.at(i); });
  Hints out;
  for (std::size_t turn = 0; turn < bytes.size(); ++turn) out.push_back(hints.advance(turn));
  return out;
}

}  // namespace

TEST_CASE("a window is filled at the first turn and moves on with each") {
  CHECK(hints_of({1, 1, 1, 1, 1, 1}, 2) == Hints{{1, 3}, {3, 4}, {4, 5}, {5, 6}, {6, 6}, {6, 6}});
}

TEST_CASE("the chunk that fills the window is in it, and nothing behind that") {
  CHECK(hints_of({1, 9, 1, 1}, 4) == Hints{{1, 2}, {2, 4}, {4, 4}, {4, 4}});
}

TEST_CASE("a window of nothing tells of nothing") {
  CHECK(hints_of({1, 1, 1}, 0) == Hints{{1, 1}, {2, 2}, {3, 3}});
}

TEST_CASE("of no chunks nothing is told, and of chunks of no bytes all at once") {
  CHECK(hints_of({}, 4).empty());
  CHECK(hints_of({0, 0, 0}, 4) == Hints{{1, 3}, {3, 3}, {3, 3}});
}

TEST_CASE("a chunk is asked for its bytes twice at most, however many the window holds") {
  constexpr std::size_t kChunks = 10'000;
  std::size_t asked = 0;
  HintWindow hints(kChunks, 4 * kChunks, [&](std::size_t) { return ++asked, 1; });

  std::size_t told = 1;
  for (std::size_t turn = 0; turn < kChunks; ++turn) {
    const auto [first, last] = hints.advance(turn);
    CHECK(first == told);
    told = last;
  }

  CHECK(told == kChunks);
  CHECK(asked <= 2 * kChunks);
}
