// When an output directory takes up the rest of an evaluation, and when it gives the lease up.
#include "agent/run/completion.h"

#include "tests/unit/agent/trainer.h"

using namespace evalcar;
using evalcar::run::Circumstances;
using evalcar::test::must;
using evalcar::testing::Trainer;
using enum evalcar::state::EvaluationState;

namespace {

constexpr const char* kLease = "/out/_evalcar/leases/5-1-regular";

/// Checkpoint 5 was published without textvqa_val, and then removed by the trainer.
struct InPart : Trainer {
  explicit InPart(const std::string& kind = std::string(protocol::kData),
                  const std::string& circumstances = "v1") {
    settings.evaluate.tasks = {"docvqa_val", "textvqa_val"};
    start();
    save(5);
    must(turn());
    publish_in_part(5, kind, circumstances);
    remove(5);
    must(turn());
  }
  void publish_in_part(std::int64_t step, const std::string& kind,
                       const std::string& circumstances) {
    state::Store& store = directory->store();
    const std::int64_t id = row(step).id;
    must(store.begin_attempt(id, "cpu"));
    must(store.record_loaded(id, "w" + std::to_string(step), "float32"));
    protocol::EvaluationResult result;
    result.weights_sha256 = "w" + std::to_string(step);
    result.tasks = {test::anls_result("docvqa_val", 0.5),
                    {.task = "textvqa_val", .error = "cannot", .error_kind = kind}};
    result.tasks[1].circumstances = circumstances;
    must(store.record_result(id, result));
    must(directory->publish(row(step)));
    REQUIRE(row(step).state == kPublished);
  }
  bool complete_one(const Circumstances& now) { return must(directory->complete_one(now)); }
};

Circumstances data_now(const std::string& error, const std::string& version, std::int64_t look = 1,
                       const std::string& evaluator = "evaluator 1") {
  return {supervise::DataReport{{"docvqa_val", {"", "d"}}, {"textvqa_val", {error, version}}},
          evaluator, look};
}

}  // namespace

TEST_CASE(
    "the rest waits, with its lease, for data that can be read and are not those that failed") {
  InPart t;

  CHECK_FALSE(t.complete_one({std::nullopt, "evaluator 1", 0}));
  CHECK_FALSE(t.complete_one(data_now("not in /data", "", 1)));
  CHECK_FALSE(t.complete_one(data_now("", "v1", 2)));
  CHECK(t.directory->partial_count() == 1);
  CHECK(t.files.exists(kLease));
  CHECK(t.row(5).state == kPublished);

  CHECK(t.complete_one(data_now("", "v2", 3)));

  CHECK(t.row(5).state == kComplete);
  CHECK(must(t.directory->lease_of(t.row(5))).has_value());
  CHECK(t.row(5).state == kLeased);
}

TEST_CASE("data that could not be opened at all are enough when they can") {
  InPart t(std::string(protocol::kData), "");
  CHECK(t.complete_one(data_now("", "v1")));
}

TEST_CASE("one look takes a row up once, whatever comes of it") {
  InPart t(std::string(protocol::kData), "");
  REQUIRE(t.complete_one(data_now("", "v1")));
  must(t.directory->lease_of(t.row(5)));
  must(t.directory->store().begin_attempt(t.row(5).id, "cpu"));
  CHECK_FALSE(must(t.directory->put_back(t.row(5), {"preparing", "data", "gone again"})));
  REQUIRE(t.row(5).state == kPublished);

  CHECK_FALSE(t.complete_one(data_now("", "v1", 1)));
  CHECK(t.complete_one(data_now("", "v1", 2)));
}

TEST_CASE("what the evaluator could not do waits for another evaluator, not for data") {
  InPart t("internal", "evaluator 1");

  CHECK_FALSE(t.complete_one(data_now("", "v2", 1, "evaluator 1")));
  CHECK(t.complete_one(data_now("", "v2", 1, "evaluator 2")));
}

TEST_CASE("the next start goes on from the lease of a part") {
  InPart t;

  t.start();
  must(t.turn());

  CHECK(t.files.exists(kLease));
  CHECK(t.complete_one(data_now("", "v2")));
}

TEST_CASE("a lease that is gone, of a checkpoint that is gone, is waited for no more") {
  InPart t;
  must(remove_tree(t.files, kLease));

  CHECK_FALSE(t.complete_one(data_now("", "v2")));

  CHECK(t.directory->partial_count() == 0);
  CHECK(t.row(5).state == kPublished);
}

TEST_CASE("a lease of a part that was damaged leaves the part published") {
  InPart t;
  must(t.files.remove_file(std::string(kLease) + "/tokenizer.json"));
  t.start();
  must(t.turn());
  REQUIRE(t.complete_one(data_now("", "v2")));

  CHECK_FALSE(must(t.directory->lease_of(t.row(5))).has_value());

  CHECK(t.row(5).state == kPublished);
  CHECK(t.row(5).reason.find("its files are gone") != std::string::npos);
  CHECK_FALSE(t.files.exists(kLease));
}

TEST_CASE("under the policy latest the rest of an older checkpoint is given up with its lease") {
  InPart t;
  t.settings.evaluate.policy = config::Policy::kLatest;
  t.save(10);
  must(t.turn());

  CHECK_FALSE(t.complete_one(data_now("", "v2")));

  CHECK_FALSE(t.files.exists(kLease));
  CHECK(t.row(5).state == kPublished);
  CHECK(t.row(5).reason.find("a newer checkpoint came") != std::string::npos);
}

TEST_CASE("under the policy latest an older save of a higher step gives no rest of a part up") {
  InPart t;
  t.settings.evaluate.policy = config::Policy::kLatest;
  t.save(10);
  for (const DirectoryEntry& entry : must(t.files.list("/out/checkpoint-10", 100))) {
    t.files.put_times("/out/checkpoint-10/" + entry.name, 1'000'000'000);
  }
  must(t.turn());
  REQUIRE(t.row(10).state == kLeased);

  CHECK(t.complete_one(data_now("", "v2")));

  CHECK(t.row(5).state == kComplete);
}

TEST_CASE("a task that is not wanted any more hands the lease to the evaluation without it") {
  InPart t;
  t.settings.evaluate.tasks = {"docvqa_val"};
  t.start();
  must(t.turn());

  CHECK_FALSE(t.complete_one(data_now("", "v2")));

  const auto rows = must(t.directory->store().read().evaluations({.step = 5}));
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].state == kPublished);
  CHECK(rows[0].lease_path.empty());
  CHECK(rows[1].state == kLeased);
  CHECK(t.files.exists(kLease));
}
