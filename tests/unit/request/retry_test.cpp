#include "agent/request/retry.h"

#include "tests/unit/state/scenario.h"

using namespace evalcar;
using namespace evalcar::request;
using evalcar::test::must;
using evalcar::test::Scenario;
using enum evalcar::state::EvaluationState;

namespace {

state::Evaluation quarantined(Scenario& s, const state::Evaluation& row) {
  must(s.store->fail_attempt(row.id, {"loading", "unsupported", "made up"}, "", true));
  return s.get(row.id);
}

}  // namespace

TEST_CASE("every failed kind of a step waits again, and its published one stays") {
  Scenario s;
  const auto regular = s.plan(500);
  const auto ema = s.plan(500, {"docvqa_val"}, "ema");
  s.bring(regular.id, kScored);
  (void)quarantined(s, ema);

  const Answer answer = retry_step(*s.store, s.run.id, 500, "now");

  CHECK(answer.outcome == Outcome::kDone);
  CHECK(answer.text == "1 evaluation of step 500 is tried again now");
  CHECK(s.state_of(ema.id) == kComplete);
  CHECK(s.state_of(regular.id) == kScored);
}

TEST_CASE("a step without a failure is left alone, and the answer says how it is") {
  Scenario s;
  const auto row = s.plan(500);
  s.bring(row.id, kEvaluating);

  const Answer answer = retry_step(*s.store, std::nullopt, 500, "now");

  CHECK(answer.outcome == Outcome::kNothing);
  CHECK(answer.text == "nothing of step 500 failed: regular is evaluating");
  CHECK(retry_step(*s.store, std::nullopt, 7, "now").text == "there is no evaluation of step 7");
}

TEST_CASE("a part whose checkpoint is gone is completed from its lease, and refused without one") {
  Scenario s;
  const auto row = s.plan(500, {"docvqa_val", "textvqa_val"});
  s.bring(row.id, kEvaluating);
  protocol::EvaluationResult result;
  result.weights_sha256 = "w1";
  result.tasks = {test::anls_result("docvqa_val", 0.5),
                  {.task = "textvqa_val", .error = "no data"}};
  must(s.store->record_result(row.id, result));
  must(s.store->begin_publication(
      row.id, 0, [](std::int64_t, auto) -> Result<std::string> { return std::string("{}"); }));
  must(s.store->finish_publication(row.id, {}));
  must(s.store->mark_checkpoint_gone(row.checkpoint_id));

  CHECK(retry_step(*s.store, s.run.id, 500, "now").outcome == Outcome::kDone);
  CHECK(s.state_of(row.id) == kComplete);

  must(s.store->transition(row.id, kSkipped, "back as it was"));
  REQUIRE(s.state_of(row.id) == kPublished);
  must(s.store->forget_lease(row.id));
  const Answer refused = retry_step(*s.store, s.run.id, 500, "now");
  CHECK(refused.outcome == Outcome::kNothing);
  CHECK(refused.text.find("its checkpoint and its lease are gone") != std::string::npos);
}

TEST_CASE("a failed row of content that was written over is not tried again on other weights") {
  Scenario s;
  const auto old = quarantined(s, s.plan(500));
  const auto rewritten =
      must(s.store->observe_checkpoint(s.run.id, Scenario::seen(500, "other content")));
  REQUIRE(rewritten.replaces.has_value());
  const auto row = s.plan_for(rewritten.checkpoint.id);
  s.bring(row.id, kLeased);

  const Answer answer = retry_step(*s.store, s.run.id, 500, "now");

  CHECK(answer.outcome == Outcome::kNothing);
  CHECK(s.state_of(old.id) == kQuarantined);
}

TEST_CASE("a failed row of an earlier life of the directory is not tried again") {
  Scenario s;
  const auto old = quarantined(s, s.plan(500));
  const auto recreated = must(s.store->ensure_run("run-01234567", "/out/run", 1, 11));
  REQUIRE(recreated.generation == 2);

  const Answer answer = retry_step(*s.store, std::nullopt, 500, "at the next start");

  CHECK(answer.outcome == Outcome::kNothing);
  CHECK(s.state_of(old.id) == kQuarantined);
}
