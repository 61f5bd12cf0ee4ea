#include <catch2/catch_test_macros.hpp>
#include <set>

#include "tests/unit/state/scenario.h"

using namespace evalcar;
using namespace evalcar::state;
using test::must;
using test::Scenario;
using enum EvaluationState;

namespace {

const std::vector<EvaluationState> kAll = {kFound,       kComplete, kLeased,     kLoading,
                                           kEvaluating,  kScored,   kPublished,  kFailed,
                                           kQuarantined, kSkipped,  kSuperseded, kLost};

/// Brings a fresh evaluation into any state.
std::int64_t in_state(Scenario& s, EvaluationState state, std::int64_t step) {
  const std::int64_t id = s.plan(step).id;
  switch (state) {
    case kFailed:
      s.bring(id, kLoading);
      must(s.store->fail_attempt(id, {"loading", "corruption", "bad shard"}, "", false));
      break;
    case kQuarantined:
    case kSkipped:
    case kSuperseded:
    case kLost:
      must(s.store->transition(id, state, "for a reason"));
      break;
    case kPublished:
      s.bring(id, kScored, "w" + std::to_string(step));
      must(s.store->begin_publication(
          id, 0, [](std::int64_t, auto) -> Result<std::string> { return std::string("{}"); }));
      must(s.store->finish_publication(id, {}));
      break;
    default:
      s.bring(id, state, "w" + std::to_string(step));
  }
  return id;
}

/// Tries a transition by the method that belongs to its target.
Status attempt_to_bring(Scenario& s, std::int64_t id, EvaluationState to) {
  switch (to) {
    case kLeased:
      return s.store->mark_leased(id, "/lease");
    case kLoading: {
      const auto begun = s.store->begin_attempt(id, "cpu");
      return begun.has_value() ? Status{} : Status{begun.error()};
    }
    case kEvaluating: {
      const auto loaded = s.store->record_loaded(id, "a-hash-of-its-own", "float32");
      return loaded.has_value() ? Status{} : Status{loaded.error()};
    }
    case kScored: {
      protocol::EvaluationResult result;
      result.weights_sha256 = s.get(id).weights_sha256;
      result.tasks = {test::anls_result("docvqa_val", 0.5)};
      return s.store->record_result(id, result);
    }
    case kPublished: {
      const auto line = s.store->begin_publication(
          id, 0, [](std::int64_t, auto) -> Result<std::string> { return std::string("{}"); });
      if (!line.has_value()) return line.error();
      return s.store->finish_publication(id, {});
    }
    case kFailed:
      return s.store->fail_attempt(id, {"", "io", "why"}, "", false);
    default:
      return s.store->transition(id, to, "why");
  }
}

}  // namespace

TEST_CASE("every legal transition is made and every other is refused and changes nothing") {
  // The contract as design.md tells it, written down once more, independent of the code.
  const std::map<EvaluationState, std::set<EvaluationState>> legal = {
      {kFound, {kComplete, kFailed, kQuarantined, kSkipped, kSuperseded, kLost}},
      {kComplete, {kLeased, kFailed, kQuarantined, kSkipped, kSuperseded, kLost}},
      {kLeased, {kLoading, kFailed, kQuarantined, kSkipped, kSuperseded, kLost}},
      {kLoading, {kEvaluating, kLeased, kFailed, kQuarantined, kSkipped, kSuperseded, kLost}},
      {kEvaluating, {kScored, kLeased, kFailed, kQuarantined, kSkipped, kSuperseded, kLost}},
      {kScored, {kPublished}},
      {kPublished, {}},
      {kFailed, {kComplete, kLeased, kLoading, kQuarantined, kSkipped, kSuperseded, kLost}},
      {kQuarantined, {kComplete}},
      {kSkipped, {kComplete}},
      {kSuperseded, {kComplete}},
      {kLost, {kComplete}}};
  Scenario s;
  std::int64_t step = 0;
  for (const EvaluationState from : kAll) {
    for (const EvaluationState to : kAll) {
      const std::int64_t id = in_state(s, from, ++step);
      REQUIRE(s.state_of(id) == from);

      const Status moved = attempt_to_bring(s, id, to);

      INFO(state_name(from) << " → " << state_name(to));
      const bool expected = legal.at(from).contains(to);
      CHECK(moved.has_value() == expected);
      CHECK(transition_allowed(from, to) == expected);
      CHECK(s.state_of(id) == (expected ? to : from));
      if (!expected) CHECK(moved.error().code == ErrorCode::kInternal);
    }
  }
}

TEST_CASE("names of states go there and back") {
  for (const EvaluationState state : kAll) CHECK(state_from_name(state_name(state)) == state);
  CHECK_FALSE(state_from_name("done").has_value());
}

TEST_CASE("transition() refuses the states whose data only their own methods bring") {
  Scenario s;
  const std::int64_t id = s.plan(1).id;
  s.bring(id, kLeased);
  CHECK_FALSE(s.store->transition(id, kLoading).has_value());
  CHECK(s.state_of(id) == kLeased);
}

TEST_CASE("another lease is taken by what waits, and by nothing else") {
  Scenario s;
  std::int64_t step = 0;
  for (const EvaluationState state : kAll) {
    const std::int64_t id = in_state(s, state, ++step);
    const bool waits = state == kLeased || state == kFailed;
    const std::string before = s.get(id).lease_path;

    const Status moved = s.store->move_lease(id, "/another");

    INFO(state_name(state));
    CHECK(moved.has_value() == waits);
    CHECK(s.state_of(id) == state);
    CHECK(s.get(id).lease_path == (waits ? "/another" : before));
  }
}

TEST_CASE("an unknown evaluation is not found") {
  Scenario s;
  CHECK(s.store->transition(99, kComplete).error().code == ErrorCode::kNotFound);
  CHECK(s.store->set_reason(99, "x").error().code == ErrorCode::kNotFound);
  CHECK(s.store->move_lease(99, "/x").error().code == ErrorCode::kNotFound);
  CHECK(s.store->begin_attempt(99, "cpu").error().code == ErrorCode::kNotFound);
  CHECK(s.store->read().evaluation(99).error().code == ErrorCode::kNotFound);
}

TEST_CASE("planning the same evaluation twice gives one row, whatever the order of its tasks") {
  Scenario s;
  const Evaluation first = s.plan(1, {"mmmu_val", "docvqa_val"});
  const Evaluation again = s.plan_for(first.checkpoint_id, {"docvqa_val", "mmmu_val"});
  const Evaluation other = s.plan_for(first.checkpoint_id, {"docvqa_val"});
  const Evaluation ema = s.plan_for(first.checkpoint_id, {"docvqa_val", "mmmu_val"}, "ema");

  CHECK(again.id == first.id);
  CHECK(other.id != first.id);
  CHECK(ema.id != first.id);
  CHECK(first.state == kFound);
  CHECK(first.checkpoint == "checkpoint-1");
  CHECK(first.run == "run-01234567-1");
}

TEST_CASE("other limits are another evaluation, another batch size is the same") {
  Scenario s;
  const Evaluation first = s.plan(1);
  NewEvaluation wanted;
  wanted.checkpoint_id = first.checkpoint_id;
  wanted.kind = "regular";
  wanted.settings.tasks = {"docvqa_val"};
  wanted.settings.batch_size = 16;
  CHECK(must(s.store->plan_evaluation(wanted)).id == first.id);
  wanted.settings.limit = 8;
  const Evaluation limited = must(s.store->plan_evaluation(wanted));
  CHECK(limited.id != first.id);
  CHECK(limited.settings.limit == 8);
  wanted.settings.tasks = {};
  CHECK(s.store->plan_evaluation(wanted).error().code == ErrorCode::kInvalidArgument);
  wanted.settings.tasks = {"docvqa_val"};
  wanted.checkpoint_id = 77;
  CHECK(s.store->plan_evaluation(wanted).error().code == ErrorCode::kNotFound);
}

TEST_CASE("a failed attempt keeps its story and the evaluation its time of the next try") {
  Scenario s;
  const std::int64_t id = s.plan(1).id;
  s.bring(id, kLoading);
  must(s.store->fail_attempt(id, {"loading", "corruption", "shard 2 is torn"},
                             "2026-11-21T10:00:00.000000Z", false));

  Evaluation e = s.get(id);
  CHECK(e.state == kFailed);
  CHECK(e.reason == "shard 2 is torn");
  CHECK(e.next_try_at == "2026-11-21T10:00:00.000000Z");
  CHECK(e.failures == 1);

  must(s.store->begin_attempt(id, "cuda:0"));
  must(s.store->fail_attempt(id, {"loading", "corruption", "still torn"}, "", true));
  e = s.get(id);
  CHECK(e.state == kQuarantined);
  CHECK(e.attempts == 2);
  CHECK(e.failures == 2);
  CHECK(e.next_try_at.empty());
  CHECK_FALSE(e.finished_at.empty());
  const auto attempts = must(s.store->read().attempts(id));
  REQUIRE(attempts.size() == 2);
  CHECK(attempts[0].outcome == "failed");
  CHECK(attempts[0].stage == "loading");
  CHECK(attempts[0].error_kind == "corruption");
  CHECK(attempts[0].message == "shard 2 is torn");
  CHECK(attempts[1].device == "cuda:0");
  CHECK_FALSE(attempts[1].ended_at.empty());
}

TEST_CASE("a retry by a person starts with a clean count") {
  Scenario s;
  const std::int64_t id = s.plan(1).id;
  s.bring(id, kLoading);
  must(s.store->fail_attempt(id, {"loading", "io", "no"}, "", true));

  must(s.store->transition(id, kComplete, "retried"));

  const Evaluation e = s.get(id);
  CHECK(e.failures == 0);
  CHECK(e.attempts == 1);
  CHECK(e.finished_at.empty());
}

TEST_CASE("progress is kept while an attempt runs, and refused otherwise") {
  Scenario s;
  const std::int64_t id = s.plan(1).id;
  CHECK_FALSE(s.store->record_progress(id, "evaluating", 1, 10).has_value());
  s.bring(id, kEvaluating);
  must(s.store->record_progress(id, "evaluating", 3, 10));
  CHECK(s.get(id).progress() == 0.3);
  CHECK(s.get(id).stage == "evaluating");
}

TEST_CASE("an attempt that failed through no fault of the checkpoint leaves it leased, uncounted") {
  Scenario s;
  for (const EvaluationState running : {kLoading, kEvaluating}) {
    const std::int64_t id = in_state(s, running, running == kLoading ? 5 : 10);

    must(s.store->put_back(id, {"starting", "no_device", "cuda:7 does not exist"}));

    const Evaluation row = s.get(id);
    CHECK(row.state == kLeased);
    CHECK(row.reason == "cuda:7 does not exist");
    CHECK(row.failures == 0);
    CHECK(row.lease_path != "");
    const auto attempts = must(s.store->read().attempts(id));
    CHECK(attempts.back().outcome == "failed");
    CHECK(attempts.back().error_kind == "no_device");
    must(s.store->begin_attempt(id, "cpu"));
    CHECK(s.get(id).reason.empty());
  }
  CHECK_FALSE(s.store->put_back(in_state(s, kPublished, 15), {"", "data", ""}).has_value());
}
