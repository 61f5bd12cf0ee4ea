#include "evaluator/engine/planner.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <numeric>
#include <set>

namespace {

using namespace evalcar::engine;
using evalcar::Status;

// Prompts that live as long as the requests that look at them.
struct Prompts {
  std::vector<std::vector<std::int32_t>> tokens;
  std::vector<PlanRequest> requests;

  // `head` words counted from `first`, a picture of `picture` placeholders (id -1) under `key`,
  // then `own`.
  void add(int head, int picture, std::uint64_t key, std::vector<std::int32_t> own,
           std::int64_t max_new_tokens = 10) {
    std::vector<std::int32_t> words(static_cast<std::size_t>(head));
    std::iota(words.begin(), words.end(), 1000);
    PlanRequest request{.tokens = {}, .images = {}, .max_new_tokens = max_new_tokens};
    if (picture > 0) request.images.push_back({head, key});
    words.insert(words.end(), static_cast<std::size_t>(picture), -1);
    words.insert(words.end(), own.begin(), own.end());
    tokens.push_back(std::move(words));
    requests.push_back(std::move(request));
  }

  std::vector<PlanRequest>& ready() {
    for (std::size_t i = 0; i < tokens.size(); ++i) requests[i].tokens = tokens[i];
    return requests;
  }
};

std::vector<std::size_t> planned(const std::vector<Pack>& packs) {
  std::vector<std::size_t> all;
  for (const Pack& pack : packs) {
    for (const Group& group : pack.groups)
      all.insert(all.end(), group.requests.begin(), group.requests.end());
  }
  std::ranges::sort(all);
  return all;
}

}  // namespace

TEST_CASE("questions on one picture share everything up to their first own word") {
  Prompts prompts;
  prompts.add(5, 40, 7, {1, 2, 3});
  prompts.add(5, 40, 7, {1, 9});
  prompts.add(5, 40, 7, {1, 2, 3, 4});

  const auto packs = plan_run(prompts.ready(), {.max_sequences = 8, .max_positions = 1000});

  REQUIRE(packs->size() == 1);
  REQUIRE(packs->front().groups.size() == 1);
  CHECK(packs->front().groups[0].shared == 46);  // 5 words, 40 placeholders and the word 1
  CHECK(packs->front().sequences == 3);
  CHECK(packs->front().capacity == 59);
}

TEST_CASE("equal words over different pictures are shared only before the picture") {
  Prompts prompts;
  prompts.add(50, 40, 7, {1, 2});
  prompts.add(50, 40, 8, {1, 2});
  const auto& requests = prompts.ready();

  CHECK(common_prefix(requests[0], requests[1]) == 50);
}

TEST_CASE("the same prompt twice leaves each a token of its own") {
  Prompts prompts;
  prompts.add(5, 40, 7, {1});
  prompts.add(5, 40, 7, {1});
  const auto& requests = prompts.ready();

  CHECK(common_prefix(requests[0], requests[1]) == 45);
}

TEST_CASE("a prefix too short to be worth a copy is not shared") {
  Prompts prompts;
  prompts.add(31, 0, 0, {1, 2});
  prompts.add(31, 0, 0, {3, 4});

  const auto packs = plan_run(prompts.ready(), {.max_sequences = 8, .max_positions = 1000});

  REQUIRE(packs->front().groups.size() == 2);
  CHECK(packs->front().groups[0].shared == 0);
}

TEST_CASE("sharing can be turned off") {
  Prompts prompts;
  prompts.add(5, 40, 7, {1, 2});
  prompts.add(5, 40, 7, {3, 4});

  const auto packs = plan_run(prompts.ready(),
                              {.max_sequences = 8, .max_positions = 1000, .share_prefixes = false});

  CHECK(packs->front().groups.size() == 2);
}

TEST_CASE("a newcomer that would halve the shared prefix stays outside the group") {
  Prompts prompts;
  prompts.add(40, 200, 7, {1, 2});
  prompts.add(40, 200, 7, {3, 4});
  prompts.add(40, 200, 8, {5, 6});

  const auto packs = plan_run(prompts.ready(), {.max_sequences = 8, .max_positions = 10000});

  REQUIRE(packs->front().groups.size() == 2);
  CHECK(packs->front().groups[0].shared == 240);
}

TEST_CASE("packs respect the number of sequences and of cache positions, longest first") {
  Prompts prompts;
  for (int i = 0; i < 20; ++i)
    prompts.add(0, 0, 0, std::vector<std::int32_t>(30, 100 + i), 5 + 256 * i);
  const PlannerLimits limits{.max_sequences = 6, .max_positions = 10000};

  const auto packs = plan_run(prompts.ready(), limits);

  std::vector<std::size_t> everything(20);
  std::iota(everything.begin(), everything.end(), std::size_t{0});
  CHECK(planned(*packs) == everything);
  std::int64_t before = packs->front().capacity;
  for (const Pack& pack : *packs) {
    CHECK(pack.sequences <= limits.max_sequences);
    CHECK(pack.sequences * pack.capacity <= limits.max_positions);
    CHECK(pack.capacity <= before);
    before = pack.capacity;
  }
}

TEST_CASE("pages of about the same size are read in the order of the data") {
  Prompts prompts;
  // Questions of different lengths on pages whose keys say nothing about their order.
  for (int i = 0; i < 40; ++i)
    prompts.add(5, 600, static_cast<std::uint64_t>((i * 17) % 40),
                std::vector<std::int32_t>(static_cast<std::size_t>(1 + (i * 7) % 20), i));
  prompts.add(5, 2000, 99, {1, 2});

  const auto packs = plan_run(prompts.ready(), {.max_sequences = 4, .max_positions = 100000});

  std::vector<std::size_t> order;
  for (const Pack& pack : *packs) {
    for (const Group& group : pack.groups) order.push_back(group.requests.front());
  }
  REQUIRE(order.size() == 41);
  CHECK(order.front() == 40);  // the long one
  CHECK(std::is_sorted(order.begin() + 1, order.end()));
}

TEST_CASE("a group larger than a pack is split and every part knows its prefix") {
  Prompts prompts;
  for (int i = 0; i < 7; ++i) prompts.add(5, 40, 7, {i, i});

  const auto packs = plan_run(prompts.ready(), {.max_sequences = 3, .max_positions = 1000});

  REQUIRE(packs->size() == 3);
  CHECK((*packs)[0].groups[0].shared == 45);
  CHECK((*packs)[2].groups[0].shared == 0);  // alone: nothing to share with
  CHECK(planned(*packs).size() == 7);
}

TEST_CASE("a request that can never fit is refused by number before anything runs") {
  Prompts prompts;
  prompts.add(3, 0, 0, {1});
  prompts.add(90, 0, 0, {1}, 20);

  const auto packs = plan_run(prompts.ready(), {.max_sequences = 4, .max_positions = 100});

  REQUIRE_FALSE(packs.has_value());
  CHECK(packs.error().code == evalcar::ErrorCode::kUnavailable);
  CHECK_FALSE(packs.error().retryable);
  CHECK(packs.error().message.find("request 1: out of memory: 111 cache positions") !=
        std::string::npos);
}

TEST_CASE("a request that others leave no room for waits, and is no fault of its own") {
  Prompts prompts;
  prompts.add(90, 0, 0, {1}, 20);

  const auto packs =
      plan_run(prompts.ready(), {.max_sequences = 4, .max_positions = 100, .most_positions = 500});

  REQUIRE_FALSE(packs.has_value());
  CHECK(packs.error().retryable);
  CHECK(packs.error().message.find("device busy while planning: out of the memory") !=
        std::string::npos);
}

TEST_CASE("several ranks deal the requests among them, each exactly once and evenly") {
  Prompts prompts;
  for (int i = 0; i < 30; ++i)
    prompts.add(5, 40, static_cast<std::uint64_t>(i / 3), {i, i + 1}, 10 + i % 7);
  std::multiset<std::size_t> all;
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    const auto packs = plan_run(prompts.ready(), {.max_sequences = 8,
                                                  .max_positions = 10000,
                                                  .share_prefixes = true,
                                                  .rank = rank,
                                                  .world_size = 4});
    const auto mine = planned(*packs);
    CHECK(mine.size() >= 6);  // ten groups of three over four ranks: two or three each
    CHECK(mine.size() <= 9);
    all.insert(mine.begin(), mine.end());
  }

  std::multiset<std::size_t> once;
  for (std::size_t i = 0; i < 30; ++i) once.insert(i);
  CHECK(all == once);
}

TEST_CASE("tokens that are scored are never shared away, and continuations need room") {
  Prompts prompts;
  prompts.add(50, 0, 0, {1, 2, 3}, 0);
  prompts.add(50, 0, 0, {1, 2, 3}, 0);
  prompts.ready();
  prompts.requests[0].own_from = 40;
  prompts.requests[1].branch_tokens = 7;

  CHECK(common_prefix(prompts.requests[0], prompts.requests[1]) == 40);
  CHECK(prompts.requests[1].need() == 60);
  const Status fits = check_fits(prompts.requests[1], {.max_positions = 59, .most_positions = 59});
  REQUIRE_FALSE(fits.has_value());
  CHECK(fits.error().message.find("7 of its continuations") != std::string::npos);
}

TEST_CASE("answers that are expected to be of about the same length end together") {
  Prompts prompts;
  const std::vector<std::int64_t> expected = {3, 90, 2, 100, 3, 80, 0, 70};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    prompts.add(0, 0, 0, std::vector<std::int32_t>(30, 100 + static_cast<std::int32_t>(i)), 128);
    prompts.requests.back().expected_tokens = expected[i];
  }

  const auto packs = plan_run(prompts.ready(), {.max_sequences = 4, .max_positions = 10000});

  REQUIRE(packs->size() == 2);
  CHECK(planned({packs->front()}) == std::vector<std::size_t>{1, 3, 5, 7});
  // Of about the same length in the order of the data; and none at all last.
  std::vector<std::size_t> order;
  for (const Group& group : packs->front().groups) order.push_back(group.requests.front());
  for (const Group& group : packs->back().groups) order.push_back(group.requests.front());
  CHECK(order == std::vector<std::size_t>{1, 3, 5, 7, 0, 2, 4, 6});
}

TEST_CASE("what is expected of an answer takes no room from it, nor does it ask for more") {
  Prompts prompts;
  for (int i = 0; i < 6; ++i) {
    prompts.add(0, 0, 0, std::vector<std::int32_t>(30, 100 + i), 128);
    prompts.requests.back().expected_tokens = i < 3 ? 1 : 1'000'000;
  }

  const auto packs = plan_run(prompts.ready(), {.max_sequences = 8, .max_positions = 400});

  REQUIRE(packs->size() == 3);
  for (const Pack& pack : *packs) CHECK(pack.capacity == 158);
}

TEST_CASE("an answer of which nothing is known is expected to be as long as it may be") {
  Prompts prompts;
  for (int i = 0; i < 3; ++i) prompts.add(0, 0, 0, std::vector<std::int32_t>(30, 100 + i), 128);
  prompts.requests[0].expected_tokens = 20;
  prompts.requests[2].expected_tokens = 128;

  const auto packs = plan_run(prompts.ready(), {.max_sequences = 1, .max_positions = 10000});

  std::vector<std::size_t> order;
  for (const Pack& pack : *packs) order.push_back(pack.groups.front().requests.front());
  CHECK(order == std::vector<std::size_t>{1, 2, 0});
}

TEST_CASE("a rank's share does not depend on what is expected, which ranks may know differently") {
  Prompts prompts;
  for (int i = 0; i < 12; ++i)
    prompts.add(0, 0, 0, std::vector<std::int32_t>(30, 100 + i), 10 + 40 * (i % 4));
  const PlannerLimits limits{
      .max_sequences = 4, .max_positions = 10000, .rank = 1, .world_size = 2};
  const auto without = plan_run(prompts.ready(), limits);
  for (std::size_t i = 0; i < 12; ++i) prompts.requests[i].expected_tokens = (i * 5) % 9;

  const auto with = plan_run(prompts.ready(), limits);

  CHECK(planned(*with) == planned(*without));
}
