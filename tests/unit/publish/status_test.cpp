// What a status lists of a long run or backlog, and what its heartbeat costs: counted, so that it
// is the same on every machine.
#include "agent/publish/status.h"

#include "tests/unit/publish/desk.h"

using namespace evalcar;
using namespace evalcar::publish;
using namespace evalcar::test;
using enum state::EvaluationState;
using nlohmann::json;

namespace {

struct Told {
  Desk d;

  json status(StatusMost most = {}) const {
    return json::parse(must(status_json(d.s.store->read(), d.s.clock, d.s.run.id, {}, most)));
  }
  json heartbeat() {
    StatusRows rows;
    d.files.put_directory(kDir);
    must(write_status(d.files, d.s.store->read(), d.s.clock, std::string(kDir) + "/status.json",
                      d.s.run.id, {}, rows));
    return d.file("status.json");
  }
};

std::vector<std::int64_t> steps_of(const json& status) {
  std::vector<std::int64_t> steps;
  for (const json& entry : status["evaluations"]) steps.push_back(entry["step"]);
  return steps;
}

using Steps = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("a heartbeat beside a long backlog stays short, and counts what it leaves out") {
  constexpr std::int64_t kListed = 100;
  constexpr std::int64_t kWaiting = 140;
  Told t;
  t.d.s.bring(t.d.s.plan(1).id, kEvaluating);
  for (std::int64_t step = 2; step <= kWaiting + 1; ++step) t.d.s.plan(step);

  const json status = t.heartbeat();

  const Steps steps = steps_of(status);
  CHECK(std::ssize(steps) == kListed + 1);
  CHECK(steps.front() == 1);  // what runs is told
  CHECK(steps[1] == kWaiting + 2 - kListed);
  CHECK(steps.back() == kWaiting + 1);
  CHECK(status["evaluations_left_out"] == kWaiting - kListed);
  CHECK(status["open_left_out"] == kWaiting - kListed);
  CHECK(status["states"] == json({{"found", kWaiting}, {"evaluating", 1}}));
  CHECK(status["lag_steps"] == kWaiting + 1);
  const json all = t.status();
  CHECK(std::ssize(steps_of(all)) == kWaiting + 1);
  CHECK_FALSE(all.contains("evaluations_left_out"));
  CHECK_FALSE(all.contains("open_left_out"));
  CHECK(all["states"] == status["states"]);
}

TEST_CASE("a step of which something that waits is left out is not told by what ended of it") {
  Told t;
  const std::int64_t earlier = t.d.s.plan(10).id;
  must(t.d.s.store->transition(earlier, kSuperseded, "written again"));
  const auto again =
      must(t.d.s.store->observe_checkpoint(t.d.s.run.id, Scenario::seen(10, "again")));
  t.d.s.plan_for(again.checkpoint.id);
  t.d.s.plan(20);
  t.d.s.plan(20, {"docvqa_val"}, "ema");
  t.d.s.plan(30);

  CHECK(steps_of(t.status({.open = 1})) == Steps{30});
  CHECK(steps_of(t.status({.open = 2})) == Steps{30});  // not a part of step 20
  CHECK(steps_of(t.status({.open = 3})) == Steps{20, 20, 30});
  CHECK(steps_of(t.status({.open = 4})) == Steps{10, 10, 20, 20, 30});
  CHECK(steps_of(t.status({.ended = 0, .open = 4})) == Steps{10, 20, 20, 30});
  const json left = t.status({.open = 3});
  CHECK(left["evaluations_left_out"] == 2);
  CHECK(left["open_left_out"] == 1);
}

TEST_CASE("a step that waits for a place in the list keeps those of lower steps out, too") {
  Told t;
  t.d.s.plan(10);
  t.d.s.plan(20);
  t.d.s.plan(20, {"docvqa_val"}, "ema");
  t.d.s.plan(30);

  CHECK(steps_of(t.status({.open = 2})) == Steps{30});
}

TEST_CASE("of what ended the highest steps are listed, beside everything that waits") {
  Told t;
  for (std::int64_t step = 1; step <= 6; ++step) {
    const std::int64_t id = t.d.s.plan(step).id;
    if (step % 2 == 1) must(t.d.s.store->transition(id, kSkipped, "not wanted"));
  }

  const json status = t.status({.ended = 1});

  CHECK(steps_of(status) == Steps{2, 4, 5, 6});
  CHECK(status["evaluations_left_out"] == 2);
  CHECK_FALSE(status.contains("open_left_out"));
  CHECK(status["states"] == json({{"found", 3}, {"skipped", 3}}));
}

TEST_CASE("a status is the text that its document has, whatever a reason says") {
  Told t;
  const std::int64_t odd = t.d.s.plan(10).id;
  must(t.d.s.store->transition(odd, kSkipped, "a \"quoted\" \n line, and no UTF-8: \xff"));
  t.d.s.plan(20);

  const auto& store = t.d.s.store->read();
  for (const auto& run : {std::optional(t.d.s.run.id), std::optional<std::int64_t>(77)}) {
    const std::string text = must(status_json(store, t.d.s.clock, run, {}));
    CHECK(text == nlohmann::ordered_json::parse(text).dump(2) + "\n");
  }
}
