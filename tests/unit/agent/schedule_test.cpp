#include "agent/schedule/schedule.h"

#include <catch2/catch_test_macros.hpp>

using namespace evalcar::schedule;
using evalcar::config::Policy;

namespace {

const std::vector<Candidate> kWaiting = {{1, 999, "regular", true},
                                         {2, 1000, "ema", true},
                                         {3, 1000, "regular", true},
                                         {4, 500, "regular", true},
                                         {5, 500, "ema", true}};

std::vector<std::int64_t> whole_order(Policy policy) {
  std::vector<Candidate> waiting = kWaiting;
  std::vector<std::int64_t> order;
  while (const auto next = choose(waiting, policy).next) {
    order.push_back(*next);
    std::erase_if(waiting, [&](const Candidate& c) { return c.id == *next; });
  }
  return order;
}

}  // namespace

TEST_CASE("newest first, by number and not by text, then backfill; regular before EMA") {
  CHECK(whole_order(Policy::kNewestFirst) == std::vector<std::int64_t>{3, 2, 1, 4, 5});
}

TEST_CASE("every takes the oldest first and leaves nothing out") {
  CHECK(whole_order(Policy::kEvery) == std::vector<std::int64_t>{4, 5, 1, 3, 2});
}

TEST_CASE("latest gives up all but the newest of each kind") {
  const Choice choice = choose(kWaiting, Policy::kLatest);

  CHECK(choice.next == 3);
  CHECK(choice.superseded == std::vector<std::int64_t>{1, 4, 5});
}

TEST_CASE("an evaluation that waits for its next try lets the others go first") {
  const std::vector<Candidate> waiting = {{1, 2, "regular", false}, {2, 1, "regular", true}};

  CHECK(choose(waiting, Policy::kNewestFirst).next == 2);
  CHECK_FALSE(choose(std::vector<Candidate>{waiting[0]}, Policy::kNewestFirst).next.has_value());
}

TEST_CASE("the cadence says which steps are wanted, and why not") {
  CHECK(why_not_wanted({}, 7, 3).empty());
  CHECK_FALSE(why_not_wanted({false, 0, 1}, 7, 3).empty());
  CHECK(why_not_wanted({true, 100, 1}, 300, 3).empty());
  CHECK(why_not_wanted({true, 100, 1}, 350, 3).find("eval_steps") != std::string::npos);
  CHECK(why_not_wanted({true, 0, 2}, 1, 0).empty());
  CHECK_FALSE(why_not_wanted({true, 0, 2}, 2, 1).empty());
  CHECK(why_not_wanted({true, 0, 2}, 3, 2).empty());
}
