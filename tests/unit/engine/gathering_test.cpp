#include "evaluator/engine/gathering.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "evaluator/engine/planner.h"

using namespace evalcar;
using namespace evalcar::engine;
using Catch::Matchers::ContainsSubstring;

namespace {
const auto kAll = [](std::size_t) { return true; };
}  // namespace

TEST_CASE("what the planner deals to the ranks is gathered completely, whatever their number") {
  std::vector<std::vector<std::int32_t>> tokens;
  for (int i = 0; i < 23; ++i) tokens.emplace_back(static_cast<std::size_t>(5 + 7 * i % 60), i);
  std::vector<PlanRequest> requests;
  for (const auto& each : tokens) {
    requests.push_back({.tokens = each, .images = {}, .max_new_tokens = 4});
  }
  for (const std::int64_t world_size : {1, 2, 3, 8, 40}) {
    Gathering gathering(requests.size(), world_size);
    for (std::int64_t rank = 0; rank < world_size; ++rank) {
      const auto packs = plan_run(
          requests,
          {.max_sequences = 4, .max_positions = 1000, .rank = rank, .world_size = world_size});
      REQUIRE(packs.has_value());
      for (const Pack& pack : *packs) {
        for (const Group& group : pack.groups) {
          for (const std::size_t request : group.requests) {
            REQUIRE(gathering.take(rank, request).has_value());
          }
        }
      }
    }
    CHECK(gathering.complete(kAll).has_value());
  }
}

TEST_CASE("an answer that is missing, doubled or of nobody is an error that names it") {
  Gathering gathering(3, 2);
  REQUIRE(gathering.take(0, 0).has_value());
  REQUIRE(gathering.take(1, 2).has_value());
  CHECK_THAT(gathering.complete(kAll).error().message, ContainsSubstring("request 1 of 3"));
  CHECK(gathering.complete([](std::size_t i) { return i != 1; }).has_value());
  CHECK_THAT(gathering.take(1, 0).error().message,
             ContainsSubstring("answered twice: by rank 0 and by rank 1"));
  CHECK_FALSE(gathering.take(2, 1).has_value());
  CHECK_FALSE(gathering.take(-1, 1).has_value());
  CHECK_FALSE(gathering.take(0, 3).has_value());
}
