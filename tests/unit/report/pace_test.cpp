#include "agent/report/pace.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include "tests/unit/support/fake_clock.h"

using namespace evalcar;
using report::duration_text;
using report::Pace;
using report::work_text;
using std::chrono::seconds;

namespace {

protocol::Progress at(const std::string& stage, std::int64_t done, std::int64_t total) {
  protocol::Progress progress;
  progress.stage = stage;
  progress.task = stage == "evaluating" ? "docvqa_val" : "";
  progress.done = done;
  progress.total = total;
  return progress;
}

}  // namespace

TEST_CASE("the rate counts what was done since the stage began") {
  test::FakeClock clock;
  Pace pace;
  CHECK_FALSE(pace.work().has_value());
  pace.note(at("preparing", 90, 100), clock.monotonic_now());
  clock.advance(seconds(5));
  pace.note(at("evaluating", 40, 100), clock.monotonic_now());  // 40 of an earlier attempt
  CHECK_FALSE(pace.work()->per_second.has_value());
  clock.advance(seconds(10));
  pace.note(at("evaluating", 60, 100), clock.monotonic_now());
  CHECK(pace.work()->per_second.value_or(0) == Catch::Approx(2));
  CHECK(pace.work()->seconds_left.value_or(0) == Catch::Approx(20));
}

TEST_CASE("another total is another work") {
  test::FakeClock clock;
  Pace pace;
  pace.note(at("evaluating", 0, 100), clock.monotonic_now());
  clock.advance(seconds(10));
  pace.note(at("evaluating", 50, 200), clock.monotonic_now());
  CHECK_FALSE(pace.work()->per_second.has_value());
}

TEST_CASE("work is told with its rate and the time that is left, with a bar on a terminal") {
  const report::WorkDone work{"evaluating", "docvqa_val", 25, 100, 0.5, 150.0};
  CHECK(work_text(work, false) == "evaluating docvqa_val 25/100, 0.50/s, 2 min 30 s left");
  CHECK(work_text(work, true) ==
        "evaluating docvqa_val [#####---------------] 25 % 25/100, 0.50/s, 2 min 30 s left");
  CHECK(work_text({"loading", "", 0, 0, {}, {}}, true) == "loading");
  // The last one is not there yet.
  CHECK(work_text({"scoring", "", 999, 1000, {}, {}}, true).find(" 99 % ") != std::string::npos);
}

TEST_CASE("a duration has two units at most") {
  CHECK(duration_text(0.4) == "0 s");
  CHECK(duration_text(59.4) == "59 s");
  CHECK(duration_text(60) == "1 min");
  CHECK(duration_text(125) == "2 min 5 s");
  CHECK(duration_text(11045) == "3 h 4 min");
  CHECK(duration_text(3 * 86400) == "3 d");
  CHECK(duration_text(-1).empty());
  CHECK(duration_text(1e300).empty());
}
