#include "agent/schedule/schedule.h"

#include <catch2/catch_test_macros.hpp>

using namespace evalcar::schedule;
using evalcar::config::EvalStrategy;
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

TEST_CASE("under latest, what a person asked for waits behind newer ones and is not given up") {
  std::vector<Candidate> waiting = kWaiting;
  waiting[3].asked = true;

  CHECK(choose(waiting, Policy::kLatest).next == 3);
  CHECK(choose(waiting, Policy::kLatest).superseded == std::vector<std::int64_t>{1, 5});
  std::erase_if(waiting, [](const Candidate& c) { return c.step == 1000 || c.step == 999; });
  CHECK(choose(waiting, Policy::kLatest).next == 4);
}

TEST_CASE("under latest, tasks that are measured more seldom are not given up for the others") {
  const std::vector<Candidate> waiting = {{1, 10, "regular", true, "mmmu_val "},
                                          {2, 10, "regular", true, "docvqa_val "},
                                          {3, 15, "regular", true, "docvqa_val "}};
  const Choice choice = choose(waiting, Policy::kLatest);

  CHECK(choice.next == 3);
  CHECK(choice.superseded == std::vector<std::int64_t>{2});
}

TEST_CASE("tasks of a cadence of their own are left out with a reason, but never of the last") {
  const auto why = [](std::int64_t eval_steps, std::int64_t every_nth, std::int64_t step,
                      std::int64_t position, bool last = false) {
    return why_tasks_not_wanted({eval_steps, every_nth}, "mmmu_val",
                                {.step = step,
                                 .position = 99,
                                 .position_of_wanted = position,
                                 .is_last = last,
                                 .epoch = {}});
  };
  CHECK(why(0, 1, 7, 3).empty());
  CHECK(why(100, 1, 300, 3).empty());
  CHECK(why(100, 1, 350, 3) ==
        "evaluate.task_eval_steps = 100 of mmmu_val does not divide step 350");
  CHECK(why(100, 1, 350, 3, true).empty());
  CHECK(why(0, 3, 5, 0).empty());
  CHECK(why(0, 3, 20, 3).empty());
  CHECK(why(0, 3, 25, 4) == "evaluate.task_every_nth = 3 of mmmu_val leaves this checkpoint out");
  CHECK(why(0, 3, 25, 4, true).empty());
}

TEST_CASE("an evaluation that waits for its next try lets the others go first") {
  const std::vector<Candidate> waiting = {{1, 2, "regular", false}, {2, 1, "regular", true}};

  CHECK(choose(waiting, Policy::kNewestFirst).next == 2);
  CHECK_FALSE(choose(std::vector<Candidate>{waiting[0]}, Policy::kNewestFirst).next.has_value());
}

TEST_CASE("only what is newer, not tried yet and could start now makes an evaluation give way") {
  const std::vector<Candidate> waiting = {{1, 5, "regular", true},
                                          {2, 10, "ema", true},
                                          {3, 20, "regular", false},
                                          {4, 30, "regular", true, "", true}};

  CHECK(newer_than({5, 0}, waiting) == 10);
  CHECK_FALSE(newer_than({10, 0}, waiting).has_value());
  CHECK_FALSE(newer_than({5, 0}, {}).has_value());
}

namespace {

/// A folder of an earlier training with a higher step, and three of the one that goes on.
std::vector<Candidate> beside_a_stale_one() {
  std::vector<Candidate> waiting;
  for (const std::int64_t step : {1000, 100, 200, 300}) {
    waiting.push_back(
        {.id = step, .step = step, .kind = "regular", .written_ns = step == 1000 ? 10 : step});
  }
  return waiting;
}

}  // namespace

TEST_CASE(
    "under latest, an older save of a higher step takes the place of none, nor does another") {
  std::vector<Candidate> waiting = beside_a_stale_one();

  CHECK(choose(waiting, Policy::kLatest).superseded == std::vector<std::int64_t>{200, 100});
  CHECK(choose(waiting, Policy::kLatest).next == 1000);

  waiting.front().ready = false;
  CHECK(choose(waiting, Policy::kLatest).superseded == std::vector<std::int64_t>{200, 100});
  CHECK(choose(waiting, Policy::kLatest).next == 300);
}

TEST_CASE("under latest, one that failed or is not ready has overtaken none until it is measured") {
  std::vector<Candidate> waiting = beside_a_stale_one();
  waiting.back().ready = false;
  CHECK(choose(waiting, Policy::kLatest).superseded == std::vector<std::int64_t>{100});

  waiting.back().ready = true;
  waiting.back().failed = true;
  CHECK(choose(waiting, Policy::kLatest).superseded == std::vector<std::int64_t>{100});

  waiting.back().failed = false;
  CHECK(choose(waiting, Policy::kLatest).superseded == std::vector<std::int64_t>{200, 100});
}

TEST_CASE("an older save of a higher step makes no evaluation give way") {
  CHECK(newer_than({200, 200}, beside_a_stale_one()) == 300);
  CHECK_FALSE(newer_than({300, 300}, beside_a_stale_one()).has_value());
}

TEST_CASE("the cadence says which steps are wanted, and why not") {
  const auto position = [](std::int64_t step, std::int64_t n) {
    return Occasion{.step = step, .position = n, .epoch = {}};
  };
  CHECK(why_not_wanted({}, position(7, 3)).empty());
  CHECK_FALSE(why_not_wanted({EvalStrategy::kNo, 0, 1}, position(7, 3)).empty());
  CHECK(why_not_wanted({EvalStrategy::kSteps, 100, 1}, position(300, 3)).empty());
  CHECK(why_not_wanted({EvalStrategy::kSteps, 100, 1}, position(350, 3)).find("eval_steps") !=
        std::string::npos);
  CHECK(why_not_wanted({EvalStrategy::kSteps, 0, 2}, position(1, 0)).empty());
  CHECK_FALSE(why_not_wanted({EvalStrategy::kSteps, 0, 2}, position(2, 1)).empty());
  CHECK(why_not_wanted({EvalStrategy::kSteps, 0, 2}, position(3, 2)).empty());
}

TEST_CASE("the last checkpoint of a training is wanted whatever the steps are, but not with no") {
  const Occasion last = {.step = 351, .position = 3, .is_last = true, .epoch = {}};
  CHECK(why_not_wanted({EvalStrategy::kSteps, 100, 2}, last).empty());
  CHECK(why_not_wanted({EvalStrategy::kEpoch, 0, 1}, last).empty());
  CHECK_FALSE(why_not_wanted({EvalStrategy::kNo, 0, 1}, last).empty());
}

TEST_CASE("with epoch each epoch has one checkpoint: the save nearest to its end") {
  const auto wanted = [](double steps_per_epoch, std::int64_t save_steps, std::int64_t until) {
    std::vector<std::int64_t> steps;
    for (std::int64_t step = save_steps; step <= until; step += save_steps) {
      const Occasion save = {.step = step,
                             .epoch = static_cast<double>(step) / steps_per_epoch,
                             .save_steps = save_steps};
      if (why_not_wanted({EvalStrategy::kEpoch, 0, 1}, save).empty()) steps.push_back(step);
    }
    return steps;
  };
  CHECK(wanted(12, 5, 40) == std::vector<std::int64_t>{10, 25, 35});  // 12, 24, 36
  CHECK(wanted(100, 100, 300) == std::vector<std::int64_t>{100, 200, 300});
  CHECK(wanted(15, 10, 60) == std::vector<std::int64_t>{10, 30, 40, 60});  // of equals the earlier
  CHECK(wanted(3, 10, 30) == std::vector<std::int64_t>{10, 20, 30});       // rarer than epochs: all
  CHECK(wanted(1000, 300, 2100) == std::vector<std::int64_t>{900, 2100});
}

TEST_CASE("what no trainer tells of its epochs speaks for the checkpoint") {
  const Occasion unknown = {.step = 7, .epoch = {}};
  const Occasion no_spacing = {.step = 7, .epoch = 0.3};
  CHECK(why_not_wanted({EvalStrategy::kEpoch, 0, 1}, unknown).empty());
  CHECK(why_not_wanted({EvalStrategy::kEpoch, 0, 1}, no_spacing).empty());
}
