#include "agent/run/average_window.h"

#include <catch2/catch_test_macros.hpp>

using evalcar::run::members_to_come;

namespace {

using Steps = std::vector<std::int64_t>;

/// The steps themselves.
Steps of(const Steps& steps, const std::set<std::int64_t>& open, std::size_t last) {
  Steps found;
  for (const std::size_t index : members_to_come(steps, open, last, last)) {
    found.push_back(steps[index]);
  }
  return found;
}

}  // namespace

TEST_CASE("the newest average, formed anew, has the newest checkpoints as members") {
  CHECK(of({5, 10, 15, 20}, {}, 3) == Steps{10, 15, 20});
  CHECK(of({5}, {}, 3) == Steps{5});
  CHECK(of({}, {}, 3).empty());
}

TEST_CASE("a checkpoint that comes late is a member beside those before and behind it") {
  // Of 22 with 15 and 20, with 20 and 25, with 25 and 30.
  CHECK(of({5, 10, 15, 20, 25, 30, 35, 40}, {22}, 3) == Steps{10, 15, 20, 25, 30, 35, 40});
  CHECK(of({5, 10, 15, 20, 25, 30, 35, 40}, {22}, 2) == Steps{15, 20, 25, 35, 40});
  CHECK(of({10, 15}, {5}, 2) == Steps{10, 15});
  CHECK(of({10, 15}, {20}, 2) == Steps{10, 15});
}

TEST_CASE("however many are late, and however long the run, few are members") {
  Steps steps;
  std::set<std::int64_t> open;
  for (std::int64_t step = 0; step < 1000; step += 2) {
    steps.push_back(step);
    open.insert(step + 1);
  }
  CHECK(members_to_come(steps, open, 3, 3).size() <= 3 + 4 * 5);
  CHECK(members_to_come(steps, {1}, 3, 3).size() <= 3 + 5);
}

TEST_CASE("where none is wanted of what comes, only those around a step are members") {
  CHECK(members_to_come({5, 10, 15, 20, 25}, {}, 2, 0).empty());
  CHECK(members_to_come({5, 10, 15, 20, 25}, {15}, 2, 0) == std::set<std::size_t>{1, 2, 3});
}
