#include "agent/run/residence.h"

#include "tests/unit/agent/working_agent.h"

using evalcar::testing::Working;
using std::chrono::minutes;
using std::chrono::seconds;
using enum evalcar::state::EvaluationState;

namespace {

/// One checkpoint, measured by an evaluator that is there.
struct Resident : Working {
  explicit Resident(std::optional<evalcar::config::Duration> idle = {}) {
    settings.evaluate.resident_idle = idle;
    save(5);
    begin();
    turns(6);
    REQUIRE(states().at("5 docvqa_val") == kPublished);
    REQUIRE(script.running);
  }
  void measure_another() {
    save(10);
    turns(8);
    CHECK(states().at("10 docvqa_val") == kPublished);
  }
};

}  // namespace

TEST_CASE("an evaluator without work stays, unless an idle limit is set") {
  Resident w;

  w.turn(minutes(60));

  CHECK(w.script.running);
}

TEST_CASE("an evaluator that is idle for its time ends, and the next checkpoint starts it again") {
  Resident w(minutes(10));

  w.turn(minutes(8));
  CHECK(w.script.running);

  w.turn(minutes(2));
  CHECK_FALSE(w.script.running);
  CHECK(w.script.starts == 1);

  w.measure_another();
  CHECK(w.script.starts == 2);
}

TEST_CASE("the loop wakes when the idle time of its evaluator is over") {
  Resident w(minutes(10));

  w.turn(minutes(9) + seconds(50));

  CHECK(w.agent->until_due() <= seconds(10));
}

TEST_CASE("whoever asks gets the memory when the evaluation that runs has ended, and once") {
  Working w;
  w.settings.evaluate.resident_idle.reset();
  w.at_evaluate = [] {};
  w.save(5);
  w.begin();
  w.turns(4);
  REQUIRE(w.script.running);

  w.agent->rest();
  w.turns(2);
  CHECK(w.script.running);  // it is at work

  w.at_evaluate = [&w] { w.say_result(); };
  w.say_result();
  w.turns(3);
  CHECK(w.states().at("5 docvqa_val") == kPublished);
  CHECK_FALSE(w.script.running);

  w.save(10);
  w.turns(8);
  CHECK(w.states().at("10 docvqa_val") == kPublished);
  CHECK(w.script.running);
}
