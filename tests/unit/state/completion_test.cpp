// The way of an evaluation that was published without some of its tasks.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tests/unit/state/scenario.h"

using namespace evalcar;
using namespace evalcar::state;
using test::must;
using test::Scenario;
using enum EvaluationState;

namespace {

const std::vector<std::string> kTasks = {"docvqa_val", "textvqa_val"};
constexpr const char* kLease = "/out/run/_evalcar/leases/x";

protocol::TaskResult failed_result(const std::string& task, const std::string& circumstances) {
  protocol::TaskResult result;
  result.task = task;
  result.error = "a picture is broken";
  result.error_kind = std::string(protocol::kData);
  result.circumstances = circumstances;
  return result;
}

void publish(Scenario& s, std::int64_t id) {
  must(s.store->begin_publication(
      id, 0, [](std::int64_t, auto) -> Result<std::string> { return std::string("{}"); }));
  must(s.store->finish_publication(id, {}));
}

/// Published with docvqa_val alone.
std::int64_t in_part(Scenario& s, std::int64_t step = 5) {
  const std::int64_t id = s.plan(step, kTasks).id;
  s.bring(id, kEvaluating);
  protocol::EvaluationResult result;
  result.weights_sha256 = "w1";
  result.seconds = 10;
  result.tasks = {test::anls_result("docvqa_val", 0.5), failed_result("textvqa_val", "v1")};
  must(s.store->record_result(id, result));
  publish(s, id);
  return id;
}

/// … and on its way again.
std::int64_t completing(Scenario& s) {
  const std::int64_t id = in_part(s);
  must(s.store->begin_completion(id, {{"textvqa_val", "v2"}}));
  must(s.store->mark_leased(id, kLease));
  must(s.store->begin_attempt(id, "cpu"));
  return id;
}

}  // namespace

TEST_CASE("a row without some of its tasks keeps its lease and says what they failed by") {
  Scenario s;
  const std::int64_t id = in_part(s);
  const std::int64_t whole = s.plan(10).id;
  s.bring(whole, kScored);

  CHECK(s.get(id).lease_path == kLease);
  CHECK(s.get(whole).lease_path.empty());
  const auto failed = must(s.store->read().failed_tasks(id));
  REQUIRE(failed.size() == 1);
  CHECK(failed[0].task == "textvqa_val");
  CHECK(failed[0].kind == protocol::kData);
  CHECK(failed[0].circumstances == "v1");
  CHECK(must(s.store->read().measured_tasks(id)) == std::vector<std::string>{"docvqa_val"});
  const auto partial = must(s.store->read().evaluations({.only_partial = true}));
  REQUIRE(partial.size() == 1);
  CHECK(partial[0].id == id);
}

TEST_CASE("the rest of a row is measured beside the numbers that stand") {
  Scenario s;
  const std::int64_t id = completing(s);
  must(s.store->record_loaded(id, "w1", "float32"));
  protocol::EvaluationResult rest;
  rest.weights_sha256 = "w1";
  rest.seconds = 2.5;
  rest.tasks = {test::anls_result("textvqa_val", 0.75)};
  must(s.store->record_result(id, rest));

  const auto result = must(s.store->read().result(id));
  REQUIRE(result.tasks.size() == 2);
  CHECK(result.tasks[0].task == "docvqa_val");
  CHECK(result.tasks[0].metrics.at(0).value == 0.5);
  CHECK(result.tasks[1].metrics.at(0).value == 0.75);
  CHECK(result.seconds == 12.5);
  publish(s, id);
  CHECK(s.get(id).reason.empty());
  CHECK(s.get(id).lease_path.empty());
  CHECK(must(s.store->read().metrics()).size() == 2);
}

TEST_CASE("wherever the rest comes to an end, the row is published with what it has") {
  Scenario s;
  const EvaluationState to = GENERATE(kLost, kSkipped, kSuperseded, kQuarantined);
  const std::int64_t id = completing(s);
  const std::string finished = s.get(id).finished_at;
  CHECK_FALSE(finished.empty());
  s.clock.advance(std::chrono::seconds{5});

  if (to == kQuarantined) {
    must(s.store->fail_attempt(id, {"loading", "internal", "made up"}, "", true));
  } else {
    must(s.store->transition(id, to, "made up"));
  }

  const Evaluation row = s.get(id);
  CHECK(row.state == kPublished);
  CHECK(row.reason == "not measured: textvqa_val: a picture is broken; " +
                          std::string(state_name(to)) + ": made up");
  CHECK(row.finished_at == finished);
  CHECK(must(s.store->read().metrics()).size() == 1);
  CHECK(must(s.store->read().attempts(id)).back().outcome != "running");
  CHECK(must(s.store->read().failed_tasks(id)).at(0).circumstances == "v2");  // tried under these
}

TEST_CASE("data that are missing again give the row back as it was") {
  Scenario s;
  const std::int64_t id = completing(s);

  must(s.store->put_back(id, {"preparing", std::string(protocol::kData), "not in /data"}));

  CHECK(s.get(id).state == kPublished);
  CHECK(s.get(id).reason == "not measured: textvqa_val: a picture is broken");
  CHECK(must(s.store->read().failed_tasks(id)).at(0).circumstances.empty());
  CHECK(must(s.store->read().attempts(id)).back().message == "not in /data");
}

TEST_CASE("data that are broken are not tried again before they are others") {
  Scenario s;
  const std::int64_t id = completing(s);
  must(s.store->record_loaded(id, "w1", "float32"));

  must(s.store->put_back(id, {"evaluating", std::string(protocol::kData), "document 3: broken"}));

  CHECK(s.get(id).state == kPublished);
  CHECK(must(s.store->read().failed_tasks(id)).at(0).circumstances == "v2");
}

TEST_CASE("a fault of the device leaves the rest waiting with its lease") {
  Scenario s;
  const std::int64_t id = completing(s);

  must(s.store->put_back(id, {"loading", std::string(protocol::kNoDevice), "no CUDA device"}));

  CHECK(s.get(id).state == kLeased);
  CHECK(s.get(id).lease_path == kLease);
}

TEST_CASE("a kill while the rest is measured goes on from its lease") {
  Scenario s;
  const std::int64_t id = completing(s);
  s.reopen();

  CHECK(must(s.store->recover()) == 1);

  CHECK(s.get(id).state == kLeased);
  CHECK(s.get(id).lease_path == kLease);
  CHECK(must(s.store->read().measured_tasks(id)).size() == 1);
}

TEST_CASE("other weights and another dtype never join numbers that stand") {
  Scenario s;
  const std::int64_t id = completing(s);

  CHECK(must(s.store->record_loaded(id, "w2", "float32")).differs.find("measured before") !=
        std::string::npos);
  CHECK(must(s.store->record_loaded(id, "w1", "bfloat16")).differs.find("float32") !=
        std::string::npos);

  CHECK(s.get(id).state == kLoading);
  CHECK(s.get(id).weights_sha256 == "w1");
  CHECK(s.get(id).compute_dtype == "float32");
  CHECK(must(s.store->record_loaded(id, "w1", "float32")).differs.empty());
  CHECK(s.get(id).state == kEvaluating);
}

TEST_CASE("a row that has all its numbers has no rest") {
  Scenario s;
  const std::int64_t id = s.plan(5).id;
  s.bring(id, kScored);
  publish(s, id);

  CHECK_FALSE(s.store->begin_completion(id, {}).has_value());
  CHECK(s.get(id).state == kPublished);
}
