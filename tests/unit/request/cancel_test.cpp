#include "agent/request/cancel.h"

#include "agent/request/retry.h"
#include "tests/unit/state/scenario.h"

using namespace evalcar;
using namespace evalcar::request;
using evalcar::test::must;
using evalcar::test::Scenario;
using enum evalcar::state::EvaluationState;

TEST_CASE("what has not been measured can be cancelled, and only a retry takes it up again") {
  for (const auto state : {kFound, kComplete, kLeased, kLoading, kEvaluating}) {
    Scenario s;
    const auto row = s.plan(500);
    s.bring(row.id, state);

    const Answer answer = cancel_evaluation(*s.store, s.run.id, row.id);

    INFO(answer.text);
    CHECK(answer.outcome == Outcome::kDone);
    CHECK(s.state_of(row.id) == kSkipped);
    CHECK(s.get(row.id).reason == kCancelled);
    CHECK(cancel_evaluation(*s.store, s.run.id, row.id).outcome == Outcome::kNothing);
    CHECK(retry_step(*s.store, s.run.id, 500, "now").outcome == Outcome::kDone);
    CHECK(s.state_of(row.id) == kComplete);
  }
}

TEST_CASE("what was measured, is another run's, or is not there is not cancelled") {
  Scenario s;
  const auto row = s.plan(500);
  s.bring(row.id, kScored);

  CHECK(cancel_evaluation(*s.store, s.run.id, row.id).text.ends_with("is measured already"));
  CHECK(cancel_evaluation(*s.store, s.run.id, 77).text == "there is no evaluation 77");
  const auto other = s.plan(600);
  const Answer foreign = cancel_evaluation(*s.store, s.run.id + 1, other.id);
  CHECK(foreign.outcome == Outcome::kNothing);
  CHECK(foreign.text.ends_with("is of another run"));
  CHECK(s.state_of(row.id) == kScored);
  CHECK(s.state_of(other.id) == kFound);
}
