// One output directory, turn by turn.
#include "agent/run/output_directory.h"

#include <algorithm>
#include <catch2/generators/catch_generators.hpp>
#include <cerrno>

#include "tests/unit/agent/trainer.h"
#include "tests/unit/support/forwarding_file_system.h"
#include "tests/unit/support/sqlite_work.h"

using namespace evalcar;
using evalcar::test::must;
using evalcar::testing::FakeNotifier;
using evalcar::testing::safetensors;
using evalcar::testing::Trainer;
using std::chrono::seconds;

TEST_CASE("a checkpoint is recorded and leased in one turn, and the lease outlives it") {
  Trainer t;
  t.save(5);

  must(t.turn());
  t.remove(5);
  must(t.turn());

  const state::Evaluation row = t.row(5);
  CHECK(row.state == state::EvaluationState::kLeased);
  CHECK(must(t.directory->lease_of(row)).has_value());
}

TEST_CASE("a checkpoint that came and went before a look at it ends as lost, with its reason") {
  Trainer t;
  must(t.turn());
  t.save(5);
  bool removed = false;
  t.files.on_call([&](const test::Call& call) {
    if (removed || call.operation != "list" || call.path != "/out/checkpoint-5") return;
    removed = true;
    t.remove(5);
  });

  for (int i = 0; i < 4; ++i) must(t.turn());

  CHECK(t.row(5).state == state::EvaluationState::kLost);
  CHECK(t.row(5).reason.find("came and went before it could be looked at") != std::string::npos);
  t.save(5);  // by a training that was begun again
  for (int i = 0; i < 4; ++i) must(t.turn());
  const auto rows = must(t.directory->store().read().evaluations({.step = 5}));
  REQUIRE(rows.size() == 2);
  CHECK(rows.back().state == state::EvaluationState::kLeased);
}

TEST_CASE("a lease of an earlier process that lacks a file is taken again from the checkpoint") {
  Trainer t;
  t.save(5);
  must(t.turn());
  must(t.files.remove_file("/out/_evalcar/leases/5-1-regular/tokenizer.json"));
  t.start();
  must(t.turn());

  const auto lease = must(t.directory->lease_of(t.row(5)));

  REQUIRE(lease.has_value());
  CHECK(t.files.exists("/out/_evalcar/leases/5-1-regular/tokenizer.json"));
}

TEST_CASE("a lease that lacks a file, of a checkpoint that is gone, is lost and never measured") {
  Trainer t;
  t.save(5);
  must(t.turn());
  t.remove(5);
  must(t.files.remove_file("/out/_evalcar/leases/5-1-regular/tokenizer.json"));
  t.start();
  must(t.turn());

  CHECK_FALSE(must(t.directory->lease_of(t.row(5))).has_value());

  CHECK(t.row(5).state == state::EvaluationState::kLost);
}

TEST_CASE("a lease whose weights were rewritten in place while no agent ran is not measured") {
  Trainer t;
  t.save(5);
  must(t.turn());
  t.directory.reset();
  t.clock.advance(seconds(5));
  t.files.put_file("/out/checkpoint-5/model.safetensors", safetensors('b'));  // the same inode
  t.remove(5);
  t.start();
  must(t.turn());

  CHECK_FALSE(must(t.directory->lease_of(t.row(5))).has_value());

  CHECK(t.row(5).state == state::EvaluationState::kLost);
}

TEST_CASE("a save over a part of one that was never complete is not measured after a restart") {
  Trainer t;
  const std::string folder = "/out/checkpoint-5/";
  t.save(5);
  must(t.files.remove_file(folder + "model.safetensors"));
  must(t.files.remove_file(folder + "trainer_state.json"));
  const auto second_shard = [](char pattern) {
    std::string text = safetensors(pattern);
    return text.replace(text.find("\"w\""), 3, "\"v\"");
  };
  t.files.put_file(folder + "model-00001-of-00002.safetensors", safetensors('a'));
  t.files.put_file(folder + "model-00002-of-00002.safetensors", second_shard('a'));
  for (int i = 0; i < 4; ++i) must(t.turn());
  CHECK(t.row(5).state == state::EvaluationState::kFound);
  t.directory.reset();  // killed, and the trainer with it
  t.clock.advance(seconds(100));
  t.files.put_file(folder + "model-00001-of-00002.safetensors", safetensors('b'));
  t.files.put_file(folder + "model.safetensors.index.json",
                   R"({"weight_map":{"w":"model-00001-of-00002.safetensors",)"
                   R"("v":"model-00002-of-00002.safetensors"}})");
  t.start();

  for (int i = 0; i < 10; ++i) must(t.turn(seconds(20)));

  CHECK(t.row(5).state == state::EvaluationState::kFound);
  INFO(t.row(5).reason);
  CHECK(t.row(5).reason.find("of two saves") != std::string::npos);
  // Whole at last, by a save that ends.
  t.files.put_file(folder + "model-00002-of-00002.safetensors", second_shard('b'));
  t.files.put_file(folder + "trainer_state.json", "{}");
  for (int i = 0; i < 4; ++i) must(t.turn(seconds(20)));
  CHECK(t.row(5).state == state::EvaluationState::kLeased);
}

TEST_CASE("a copied lease of an earlier process is used, though its files have other inodes") {
  Trainer t;
  t.save(5);
  t.files.put_directory("/out/_evalcar");
  t.files.mount("/out/_evalcar", 99, 0xef53);  // no links across file systems
  t.files.set_free_bytes(1U << 30U);
  must(t.turn());
  t.remove(5);
  t.start();
  must(t.turn());

  CHECK(must(t.directory->lease_of(t.row(5))).has_value());
}

namespace {

/// Every piece of work takes the whole slice of a turn.
struct Slow : Trainer {
  Slow() {
    around.stopping = [] { return true; };
    start();
  }
  std::size_t count(state::EvaluationState state) const {
    return must(directory->store().read().evaluations({.states = {state}})).size();
  }
  /// Turns that come at once, until there is nothing left to do at once.
  int turns_at_once() {
    int turns = 0;
    for (must(turn()); directory->until_due() == seconds(0) && turns < 100; ++turns) {
      must(turn(seconds(0)));
    }
    return turns;
  }
};

}  // namespace

TEST_CASE("a backlog is recorded in slices, and chosen from when all of it is known") {
  Slow t;
  for (const std::int64_t step : {5, 10, 15, 20}) t.save(step);

  must(t.turn());

  CHECK(t.count(state::EvaluationState::kLeased) == 1);
  CHECK(t.row(20).state == state::EvaluationState::kLeased);  // the newest
  CHECK(must(t.directory->waiting()).empty());
  CHECK_FALSE(must(t.directory->quiet()));
  CHECK(t.directory->until_due() == seconds(0));
  CHECK(t.turns_at_once() >= 3);
  CHECK(t.count(state::EvaluationState::kLeased) == 4);
  CHECK(must(t.directory->waiting()).size() == 4);
  CHECK(t.directory->waiting_count() == 4);
}

TEST_CASE("a kill between a new generation and the end of the one before leaves no second number") {
  const bool is_there = GENERATE(true, false);
  INFO((is_there ? "the checkpoint is there" : "it is gone when the next process starts"));
  Trainer t;
  t.save(5);
  must(t.turn());
  t.remove(5);
  must(t.turn());
  t.save(5, 'b');
  t.refuse("UPDATE OF state ON evaluation");  // the new generation is written, and no more
  CHECK_FALSE(t.turn().has_value());
  REQUIRE(must(t.directory->store().read().checkpoints(1)).size() == 2);
  t.directory.reset();
  t.accept();
  if (!is_there) t.remove(5);
  t.start();

  for (int i = 0; i < 4; ++i) must(t.turn());

  for (const state::Evaluation& row : must(t.directory->store().read().evaluations({.step = 5}))) {
    INFO(row.generation << ": " << row.reason);
    if (row.generation == 1) {
      CHECK(row.state == state::EvaluationState::kSuperseded);
      CHECK(row.reason == "checkpoint-5 was written again (generation 2)");
    }
  }
}

TEST_CASE("which one is the n-th is judged when all that are there were found") {
  Slow t;
  t.settings.evaluate.every_nth = 3;
  t.directory.reset();
  std::vector<std::int64_t> wanted;
  for (std::int64_t step = 5; step <= 100; step += 5) {
    t.save(step);
    if (step % 15 == 5) wanted.push_back(step);
  }
  t.start();
  t.files.on_call([&t](const test::Call& call) {
    if (call.operation == "list") t.clock.advance(std::chrono::milliseconds(100));
  });

  for (int i = 0; i < 80; ++i) must(t.turn());

  std::vector<std::int64_t> found;
  for (const state::Evaluation& row : must(t.directory->store().read().evaluations({}))) {
    if (row.state != state::EvaluationState::kSkipped) found.push_back(row.step);
  }
  std::ranges::sort(found);
  CHECK(found == wanted);
}

TEST_CASE("what vanished while no agent ran is ended in slices, and what waits is chosen then") {
  Slow t;
  for (const std::int64_t step : {5, 10, 15, 20}) t.save(step);
  t.turns_at_once();
  t.directory.reset();
  for (const std::int64_t step : {5, 10, 15}) t.remove(step);
  t.start();
  const auto gone = [&t] {
    const auto all = must(t.directory->store().read().checkpoints(1));
    return std::ranges::count_if(all, [](const auto& one) { return !one.gone_at.empty(); });
  };
  while (gone() == 0) must(t.turn());
  const MonotonicTime first = t.clock.monotonic_now();
  REQUIRE(t.directory->until_due() == seconds(0));
  CHECK(must(t.directory->waiting()).empty());

  for (int i = 0; i < 6; ++i) must(t.turn());

  CHECK(gone() == 3);
  CHECK(t.directory->last_news() > first);  // whoever asked before asks again
  CHECK(must(t.directory->waiting()).size() == 4);
}

TEST_CASE("leases that the database lost are taken back in slices, and none is removed meanwhile") {
  Slow t;
  for (const std::int64_t step : {5, 10, 15, 20}) t.save(step);
  t.turns_at_once();
  for (const std::int64_t step : {5, 10, 15, 20}) t.remove(step);
  t.lose_database();

  must(t.turn());
  const std::size_t first = t.count(state::EvaluationState::kLeased);
  CHECK((first > 0 && first < 4));
  CHECK(must(t.directory->waiting()).empty());
  t.turns_at_once();

  CHECK(t.count(state::EvaluationState::kLeased) == 4);
  for (const std::int64_t step : {5, 10, 15, 20}) {
    CHECK(must(t.directory->lease_of(t.row(step))).has_value());
  }
}

TEST_CASE("what was published is recalled in slices, before anything is planned") {
  Slow t;
  t.save(5);
  t.turns_at_once();
  t.files.put_file("/out/_evalcar/metrics.jsonl", "{\"seq\":1}\n{\"seq\":2}\n{\"seq\":3}\n");
  t.lose_database();

  must(t.turn());
  CHECK(must(t.directory->store().read().evaluations()).empty());
  CHECK(t.directory->until_due() == seconds(0));
  CHECK_FALSE(must(t.directory->quiet()));
  t.turns_at_once();

  CHECK(t.count(state::EvaluationState::kLeased) == 1);
}

TEST_CASE("rows of another configuration end in slices, before leases are given up for room") {
  Slow t;
  for (const std::int64_t step : {5, 10, 15}) t.save(step);
  t.turns_at_once();
  for (const std::int64_t step : {5, 10, 15}) t.remove(step);
  t.settings.evaluate.tasks = {"mmmu_val"};
  t.settings.limits.lease_budget = 1;
  t.start();

  must(t.turn(seconds(10)));
  while (t.count(state::EvaluationState::kSkipped) == 0) must(t.turn(seconds(0)));
  CHECK(t.count(state::EvaluationState::kSkipped) == 1);
  CHECK(t.count(state::EvaluationState::kLost) == 0);
  CHECK(must(t.directory->waiting()).empty());
  t.turns_at_once();

  CHECK(t.count(state::EvaluationState::kSkipped) == 3);
  CHECK(t.count(state::EvaluationState::kLost) == 3);  // their leases were handed over first
  CHECK(t.directory->stage().names().empty());
}

TEST_CASE("leases are given up oldest first, in slices, and no more than is needed") {
  Slow t;
  for (const std::int64_t step : {5, 10, 15, 20}) t.save(step);
  t.turns_at_once();
  for (const std::int64_t step : {5, 10, 15, 20}) t.remove(step);
  const std::uint64_t held = t.directory->stage().held().bytes();
  t.settings.limits.lease_budget = held / 2;
  t.start();

  must(t.turn(seconds(10)));
  while (t.count(state::EvaluationState::kLost) == 0) must(t.turn(seconds(0)));
  CHECK(t.count(state::EvaluationState::kLost) == 1);
  CHECK(t.directory->until_due() == seconds(0));
  t.turns_at_once();

  CHECK(t.row(5).state == state::EvaluationState::kLost);
  CHECK(t.row(10).state == state::EvaluationState::kLost);
  CHECK(t.row(15).state == state::EvaluationState::kLeased);
  CHECK(t.row(20).state == state::EvaluationState::kLeased);
}

TEST_CASE("no more leases are given up in one turn than are needed") {
  Trainer t;
  for (const std::int64_t step : {5, 10, 15, 20}) t.save(step);
  for (int i = 0; i < 3; ++i) must(t.turn());
  for (const std::int64_t step : {5, 10, 15, 20}) t.remove(step);
  t.settings.limits.lease_budget = t.directory->stage().held().bytes() / 2;
  t.start();

  must(t.turn(seconds(10)));

  for (const std::int64_t step : {5, 10}) CHECK(t.row(step).state == state::EvaluationState::kLost);
  for (const std::int64_t step : {15, 20}) {
    CHECK(t.row(step).state == state::EvaluationState::kLeased);
  }
}

TEST_CASE("where space is short, what the cadence leaves out goes before what it wants") {
  Trainer t;
  for (const std::int64_t step : {5, 10, 15, 20}) t.save(step);
  for (int i = 0; i < 3; ++i) must(t.turn());
  for (const std::int64_t step : {5, 10, 15, 20}) t.remove(step);
  t.settings.limits.lease_budget = t.directory->stage().held().bytes() / 2;
  t.settings.evaluate.eval_steps = 10;
  t.start();

  must(t.turn(seconds(10)));

  for (const std::int64_t step : {5, 15}) {
    CHECK(t.row(step).state == state::EvaluationState::kSkipped);
    CHECK(t.row(step).reason.find("evaluate.eval_steps = 10") != std::string::npos);
  }
  for (const std::int64_t step : {10, 20}) {
    CHECK(t.row(step).state == state::EvaluationState::kLeased);
  }
}

TEST_CASE("where space is short, what the policy passes over is superseded and not lost") {
  Trainer t;
  t.settings.evaluate.policy = config::Policy::kLatest;
  for (const std::int64_t step : {5, 10, 15}) t.save(step);
  for (int i = 0; i < 3; ++i) must(t.turn());
  for (const std::int64_t step : {5, 10, 15}) t.remove(step);
  t.settings.limits.lease_budget = t.directory->stage().held().bytes() / 3;
  t.start();

  must(t.turn(seconds(10)));

  for (const std::int64_t step : {5, 10}) {
    CHECK(t.row(step).state == state::EvaluationState::kSuperseded);
  }
  CHECK(t.row(15).state == state::EvaluationState::kLeased);
}

TEST_CASE("where space is short, an older save of a higher step passes over none") {
  Trainer t;
  t.settings.evaluate.policy = config::Policy::kLatest;
  t.save(1000);
  t.clock.advance(seconds(60));
  t.save(20);
  for (int i = 0; i < 3; ++i) must(t.turn());
  for (const std::int64_t step : {1000, 20}) t.remove(step);
  t.settings.limits.lease_budget = t.directory->stage().held().bytes() / 2;
  t.start();

  must(t.turn(seconds(10)));

  CHECK(t.row(20).state == state::EvaluationState::kLost);  // for room: it is the lower step
  CHECK(t.row(20).reason.find("lease_budget") != std::string::npos);
}

TEST_CASE("where space is short, what nobody needs goes before what waits") {
  Trainer t;
  t.save(5);
  must(t.turn());
  t.remove(5);
  t.settings.limits.lease_budget = t.directory->stage().held().bytes();
  t.files.put_file("/out/_evalcar/leases/7-1-average/members/5/w.safetensors", "w");
  must(t.directory->stage().leave_others({"/out/_evalcar/leases/5-1-regular"}));

  must(t.turn(seconds(10)));

  CHECK(t.directory->stage().names() == std::vector<std::string>{"5-1-regular"});
  CHECK(t.row(5).state == state::EvaluationState::kLeased);
}

TEST_CASE("a lease that nobody needs and that could not be removed is removed in a later turn") {
  Trainer t;
  t.save(5);
  must(t.turn());
  t.files.put_file("/out/_evalcar/leases/7-1-average/members/5/w.safetensors", "w");
  must(t.directory->stage().leave_others({"/out/_evalcar/leases/4-1-regular"}));
  t.files.fail_operation("remove_file", EIO);

  must(t.turn());
  CHECK(t.directory->stage().has_leftovers());
  CHECK(t.directory->stage().names().size() == 2);
  for (int i = 0; i < 3; ++i) must(t.turn(seconds(10)));

  CHECK_FALSE(t.directory->stage().has_leftovers());
  CHECK(t.directory->stage().names() == std::vector<std::string>{"5-1-regular"});
  CHECK(must(t.directory->lease_of(t.row(5))).has_value());
}

TEST_CASE("an output directory that is away for a moment loses nothing") {
  Trainer t;
  t.save(5);
  must(t.files.remove_file("/out/checkpoint-5/trainer_state.json"));
  must(t.turn());
  REQUIRE(t.row(5).state == state::EvaluationState::kFound);
  t.files.put_directory("/away");
  for (const char* const name : {"/checkpoint-5", "/_evalcar"}) {  // unmounted, and mounted again
    must(t.files.rename(std::string("/out") + name, std::string("/away") + name));
  }
  must(t.turn());
  for (const char* const name : {"/checkpoint-5", "/_evalcar"}) {
    must(t.files.rename(std::string("/away") + name, std::string("/out") + name));
  }

  for (int i = 0; i < 4; ++i) must(t.turn());

  CHECK(t.row(5).state == state::EvaluationState::kFound);
  t.files.put_file("/out/checkpoint-5/trainer_state.json", "{}");
  for (int i = 0; i < 2; ++i) must(t.turn());
  CHECK(t.row(5).state == state::EvaluationState::kLeased);
  CHECK(t.row(5).generation == 1);
}

namespace {

/// docvqa_val of every checkpoint, mmmu_val of every second one that is evaluated.
struct Seldom : Trainer {
  Seldom() {
    settings.evaluate.tasks = {"docvqa_val", "mmmu_val"};
    settings.evaluate.task_every_nth = {{"mmmu_val", 2}};
    start();
  }
  bool wants_mmmu(std::int64_t step) const {
    return row(step, "mmmu_val").state != state::EvaluationState::kSkipped;
  }
  void publish(const state::Evaluation& row) {
    state::Store& store = directory->store();
    must(store.begin_attempt(row.id, "cpu"));
    must(store.record_loaded(row.id, "w", "float32"));
    protocol::EvaluationResult result;
    result.weights_sha256 = "w";
    result.tasks = {test::anls_result(row.settings.tasks.front(), 0.5)};
    must(store.record_result(row.id, result));
    directory->release(row);
    must(directory->publish(must(store.read().evaluation(row.id))));
  }
};

constexpr const char* kLease5 = "/out/_evalcar/leases/5-1-regular";

}  // namespace

TEST_CASE("a lost database keeps the lease of a seldom task whose sibling was published") {
  Seldom t;
  t.save(5);
  must(t.turn());
  t.publish(t.row(5, "docvqa_val"));
  t.remove(5);
  must(t.turn());
  REQUIRE(t.files.exists(kLease5));

  t.lose_database();
  must(t.turn());
  must(t.turn());

  CHECK(t.row(5, "docvqa_val").state == state::EvaluationState::kPublished);
  CHECK(t.row(5, "mmmu_val").state == state::EvaluationState::kLeased);
  CHECK(t.files.exists(kLease5));
  CHECK(must(t.directory->lease_of(t.row(5, "mmmu_val"))).has_value());
}

TEST_CASE("a lost database does not measure a seldom task from a lease of other files") {
  Seldom t;
  t.save(5);
  must(t.turn());
  t.publish(t.row(5, "docvqa_val"));
  t.remove(5);
  must(t.turn());
  t.clock.advance(seconds(5));
  t.files.put_file(std::string(kLease5) + "/model.safetensors", safetensors('b'));

  t.lose_database();
  must(t.turn());

  CHECK(must(t.directory->store().read().evaluations({.step = 5})).size() == 1);
}

TEST_CASE("a lost database takes back the lease of a save whose forerunner was never published") {
  Seldom t;
  t.settings.evaluate.tasks = {"docvqa_val"};
  t.settings.evaluate.weights = {"regular"};
  t.settings.evaluate.task_every_nth.clear();
  t.start();
  const bool whole = GENERATE(true, false);
  for (const char pattern : {'a', 'b', 'c'}) {
    t.save(5, pattern);
    for (int i = 0; i < 3; ++i) must(t.turn(seconds(40)));
    if (pattern == 'a') t.publish(t.row(5));
  }
  REQUIRE(t.held_pattern("5-3-regular") == 'c');
  t.remove(5);
  if (!whole) must(t.files.remove_file("/out/_evalcar/leases/5-3-regular/model.safetensors"));

  t.lose_database();
  for (int i = 0; i < 4; ++i) must(t.turn());

  const auto rows = must(t.directory->store().read().evaluations({.step = 5}));
  REQUIRE(rows.size() == 2);
  CHECK(rows.front().state == state::EvaluationState::kPublished);
  CHECK(rows.back().generation == 3);
  CHECK(rows.back().state ==
        (whole ? state::EvaluationState::kLeased : state::EvaluationState::kLost));
  if (whole) {
    CHECK(must(t.directory->lease_of(rows.back())).has_value());
    CHECK(t.held_pattern("5-3-regular") == 'c');
  }
}

TEST_CASE("a seldom task counts the checkpoints that the cadence of all lets through, no others") {
  Seldom t;
  t.settings.evaluate.eval_steps = 10;
  t.start();
  for (const std::int64_t step : {5, 10, 15, 20, 25, 30}) t.save(step);
  must(t.turn());

  CHECK(t.wants_mmmu(10));
  CHECK_FALSE(t.wants_mmmu(20));
  CHECK(t.wants_mmmu(30));
  CHECK(t.row(20, "mmmu_val").reason.find("task_every_nth") != std::string::npos);
}

TEST_CASE("a seldom task counts the same where every n-th checkpoint is evaluated at all") {
  Seldom t;
  t.settings.evaluate.every_nth = 2;
  t.start();
  for (const std::int64_t step : {1, 2, 3, 4, 5}) t.save(step);
  must(t.turn());

  CHECK(t.wants_mmmu(1));
  CHECK_FALSE(t.wants_mmmu(3));
  CHECK(t.wants_mmmu(5));
}

TEST_CASE("a seldom task counts epochs that it remembers, whatever retention took and a restart") {
  Seldom t;
  t.settings.evaluate.eval_strategy = config::EvalStrategy::kEpoch;
  t.start();
  for (std::int64_t step = 1; step <= 8; ++step) {  // 4 steps an epoch, saved at each second one
    if (step % 2 == 1) continue;
    t.save(step);
    t.files.put_file("/out/checkpoint-" + std::to_string(step) + "/trainer_state.json",
                     R"({"epoch":)" + std::to_string(static_cast<double>(step) / 4) +
                         R"(,"save_steps":2,"global_step":)" + std::to_string(step) +
                         R"(,"max_steps":100})");
    must(t.turn());
    if (step > 2) t.remove(step - 2);
    if (step == 6) t.start();
    must(t.turn());
  }

  CHECK(t.row(2, "docvqa_val").state == state::EvaluationState::kSkipped);
  CHECK(t.row(6, "docvqa_val").state == state::EvaluationState::kSkipped);
  CHECK(t.row(8, "docvqa_val").state == state::EvaluationState::kLeased);
  CHECK(t.wants_mmmu(4));
  CHECK_FALSE(t.wants_mmmu(8));
}

TEST_CASE("a kill between the leases of two groups of tasks loses neither") {
  Seldom t;
  t.refuse(
      "UPDATE ON evaluation WHEN NEW.tasks LIKE '%mmmu%' AND EXISTS(SELECT 1 FROM evaluation "
      "WHERE lease_path <> '')");
  t.save(5);
  CHECK_FALSE(t.turn().has_value());
  REQUIRE(t.row(5, "docvqa_val").state == state::EvaluationState::kLeased);
  t.directory.reset();
  t.accept();
  t.remove(5);

  t.start();
  must(t.turn());
  must(t.turn());

  CHECK(t.row(5, "mmmu_val").state == state::EvaluationState::kLeased);
  CHECK(must(t.directory->lease_of(t.row(5, "mmmu_val"))).has_value());
}

TEST_CASE("a retry of a skipped seldom task is measured from its sibling's lease") {
  Seldom t;
  t.save(5);
  t.save(10);
  must(t.turn());
  t.remove(10);
  must(t.turn());
  REQUIRE(t.row(10, "mmmu_val").state == state::EvaluationState::kSkipped);
  REQUIRE(t.row(10, "docvqa_val").state == state::EvaluationState::kLeased);

  must(t.directory->store().ask_again(t.row(10, "mmmu_val").id, "retry"));
  const auto lease = must(t.directory->lease_of(t.row(10, "mmmu_val")));

  REQUIRE(lease.has_value());
  CHECK(lease->dir == "/out/_evalcar/leases/10-1-regular");
  CHECK(t.row(10, "mmmu_val").state == state::EvaluationState::kLeased);
}

TEST_CASE("a retry of a seldom task is measured from the lease that is kept as one of the best") {
  Seldom t;
  t.settings.publish.keep_best = 1;
  t.settings.publish.metric_for_best_model = "eval/docvqa_val/anls";
  t.start();
  t.save(5);
  t.save(10);
  must(t.turn());
  t.publish(t.row(10, "docvqa_val"));
  must(t.turn());
  t.remove(10);
  must(t.turn());
  REQUIRE(t.files.exists("/out/_evalcar/leases/10-1-regular"));

  must(t.directory->store().ask_again(t.row(10, "mmmu_val").id, "retry"));
  CHECK(must(t.directory->lease_of(t.row(10, "mmmu_val"))).has_value());
}

TEST_CASE("a retry of a seldom task of whose files nothing is left is lost") {
  Seldom t;
  t.save(5);
  t.save(10);
  must(t.turn());
  t.publish(t.row(10, "docvqa_val"));
  t.remove(10);
  must(t.turn());

  must(t.directory->store().ask_again(t.row(10, "mmmu_val").id, "retry"));
  CHECK_FALSE(must(t.directory->lease_of(t.row(10, "mmmu_val"))).has_value());
  CHECK(t.row(10, "mmmu_val").state == state::EvaluationState::kLost);
}

TEST_CASE("a look at what waits reads the rows that have changed, and no others") {
  constexpr std::int64_t kWaiting = 40;
  test::SqliteWork work;
  Trainer t;
  for (std::int64_t step = 1; step <= kWaiting; ++step) t.save(step);
  for (int i = 0; i < 3; ++i) must(t.turn());
  std::vector<schedule::Candidate> seen;
  const auto look = [&] {
    work.take_steps();
    seen = must(t.directory->waiting());
    return work.take_steps();
  };
  look();  // its statements are prepared
  const state::Evaluation skipped = t.row(3);
  const std::int64_t quiet = look();
  must(t.directory->store().transition(skipped.id, state::EvaluationState::kSkipped, "for now"));
  const std::int64_t one_changed = look();
  CHECK(std::ssize(seen) == kWaiting - 1);
  must(t.directory->store().transition(skipped.id, state::EvaluationState::kComplete));
  CHECK(look() <= 2 * one_changed);
  CHECK(std::ssize(seen) == kWaiting);
  // Whoever else writes is no statement of ours: all rows are read.
  t.on_database("UPDATE evaluation SET state = 'skipped', reason = 'by hand' WHERE step > 30");
  const std::int64_t all = look();
  CHECK(std::ssize(seen) == 30);

  CHECK(quiet * 20 < all);
  CHECK(one_changed * 3 < all);
}

TEST_CASE("an output directory that is moved in the middle of a publication is not made again") {
  Trainer t;
  t.save(5);
  must(t.turn());
  state::Store& store = t.directory->store();
  const state::Evaluation row = t.row(5);
  must(store.begin_attempt(row.id, "cpu"));
  must(store.record_loaded(row.id, "w", "float32"));
  protocol::EvaluationResult result;
  result.weights_sha256 = "w";
  result.tasks = {test::anls_result("docvqa_val", 0.5)};
  must(store.record_result(row.id, result));

  for (std::size_t behind = 0;; ++behind) {  // as many calls later
    INFO("moved behind " << behind << " calls");
    std::size_t calls = 0;
    bool moved = false;
    t.files.on_call([&](const test::Call&) {
      if (moved || calls++ < behind) return;
      moved = true;
      must(t.files.rename("/out", "/away"));
    });
    const Status published = t.directory->publish(must(store.read().evaluation(row.id)));
    t.files.on_call({});
    CHECK_FALSE((moved && t.files.info("/out").has_value()));
    if (!moved) {
      must(published);
      break;
    }
    must(t.files.rename("/away", "/out"));
  }
}

TEST_CASE("the last checkpoint is the one written last, not a higher one of an earlier training") {
  Trainer t;
  t.settings.evaluate.eval_strategy = config::EvalStrategy::kSteps;
  t.settings.evaluate.eval_steps = 200;
  t.start();
  for (const std::int64_t step : {1000, 800, 950}) {
    t.save(step, static_cast<char>('a' + step / 50));
    t.clock.advance(seconds(60));
    for (int i = 0; i < 3; ++i) must(t.turn());
  }
  for (const std::int64_t step : {1000, 800}) t.publish(t.row(step), 0.5);
  REQUIRE(t.row(950).state == state::EvaluationState::kSkipped);

  CHECK(must(t.directory->take_up_last()));

  CHECK(t.row(950).state == state::EvaluationState::kLeased);
  CHECK_FALSE(must(t.directory->take_up_last()));
}

TEST_CASE("the last checkpoint's average is measured where a cadence left it out before") {
  Trainer t;
  t.settings.evaluate.average_last = 2;
  t.settings.evaluate.eval_strategy = config::EvalStrategy::kSteps;
  t.settings.evaluate.eval_steps = 10;
  t.start();
  for (const std::int64_t step : {10, 15}) {
    t.save(step, static_cast<char>('a' + step));
    for (int i = 0; i < 3; ++i) must(t.turn());
  }
  t.publish(t.row(10), 0.5);
  const auto averages = [&t] {
    return must(t.directory->store().read().evaluations({.kind = "average"}));
  };
  CHECK(averages().empty());

  CHECK(must(t.directory->take_up_last()));
  CHECK_FALSE(must(t.directory->quiet()));
  for (int i = 0; i < 3; ++i) must(t.turn());

  REQUIRE(averages().size() == 1);
  CHECK(averages().front().step == 15);
  CHECK(averages().front().state == state::EvaluationState::kLeased);
}

namespace {

/// Nothing can be copied, and `what` is refused.
struct Refused : Trainer {
  int why = ENOSPC;  ///< 0: nothing is
  std::string what = "hard_link";
  std::string where = "/";
  Refused() {
    files.set_free_bytes(0);
    files.on_call([this](const test::Call& call) {
      const bool meant = call.operation == what && call.path.find(where) != std::string::npos;
      if (why != 0 && meant) files.fail_operation(what, why);
    });
  }
  bool in_place(std::int64_t step) const {
    return row(step).lease_path == "/out/checkpoint-" + std::to_string(step);
  }
  void turns(int count) {
    for (int i = 0; i < count; ++i) must(turn());
  }
};

}  // namespace

TEST_CASE("a lease that was refused for a reason of the moment is taken as soon as that is over") {
  Refused t;
  t.what = GENERATE(std::string("hard_link"), std::string("make_directory"));
  t.why = GENERATE(ENOSPC, EDQUOT, EMFILE, EIO);
  INFO(t.what << ", " << t.why);
  t.save(5);
  t.turns(3);
  REQUIRE(t.row(5).state == state::EvaluationState::kLeased);
  REQUIRE(t.in_place(5));

  t.why = 0;
  t.turns(12);
  t.remove(5);
  t.turns(1);

  CHECK(t.row(5).lease_path == "/out/_evalcar/leases/5-1-regular");
  CHECK(must(t.directory->lease_of(t.row(5))).has_value());
  CHECK(t.held_pattern("5-1-regular") == 'a');
}

TEST_CASE("a lease that an earlier process was refused is taken by the next one") {
  Refused t;
  t.save(5);
  t.turns(1);
  REQUIRE(t.in_place(5));

  t.why = 0;
  t.start();
  t.turns(3);
  t.remove(5);
  t.turns(1);

  CHECK(must(t.directory->lease_of(t.row(5))).has_value());
}

TEST_CASE("what can never be linked stays in place, and nothing is tried again") {
  Refused t;
  t.why = EXDEV;
  t.save(5);
  t.turns(1);
  REQUIRE(t.in_place(5));
  const std::size_t tries = t.files.count("hard_link");

  t.turns(30);

  CHECK(t.in_place(5));
  CHECK(t.files.count("hard_link") == tries);
  CHECK(must(t.directory->lease_of(t.row(5))).has_value());
}

TEST_CASE("one lease that is refused again and again keeps no other from being taken late") {
  Refused t;
  t.save(5);
  t.save(10);
  t.turns(1);
  REQUIRE(t.in_place(5));
  REQUIRE(t.in_place(10));

  t.where = "/checkpoint-5/";
  t.turns(20);

  CHECK(t.in_place(5));
  CHECK(t.row(10).lease_path == "/out/_evalcar/leases/10-1-regular");
}

TEST_CASE("an evaluation that is read in place now keeps its place until it waits again") {
  Refused t;
  t.save(5);
  t.turns(1);
  const state::Evaluation row = t.row(5);
  REQUIRE(must(t.directory->lease_of(row)).has_value());
  t.directory->set_active(row.id);
  must(t.directory->store().begin_attempt(row.id, "cpu"));

  t.why = 0;
  t.turns(12);
  CHECK(t.in_place(5));

  must(t.directory->put_back(t.row(5), {"loading", "device_busy", "later"}));
  t.directory->set_active(std::nullopt);
  t.turns(12);
  CHECK(t.row(5).lease_path == "/out/_evalcar/leases/5-1-regular");
}

TEST_CASE("what is tried again is leased at once, and retention does not take it while it waits") {
  Trainer t;
  t.save(5);
  must(t.turn());
  must(t.directory->fail(t.row(5), {"loading", "internal", "made up"}, false));
  REQUIRE(t.row(5).state == state::EvaluationState::kQuarantined);
  REQUIRE(t.held_pattern("5-1-regular") == 0);

  t.files.put_file(request::folder_of(t.settings.store.path) + "/a.request",
                   request::encode(request::Retry{5}));
  must(t.turn(seconds(31)));
  t.remove(5);
  must(t.turn());

  CHECK(t.row(5).state == state::EvaluationState::kLeased);
  CHECK(must(t.directory->lease_of(t.row(5))).has_value());
}

namespace {

struct Mount final : test::ForwardingFileSystem {
  using ForwardingFileSystem::ForwardingFileSystem;
  bool hangs = false;
  Status answers(const std::string& path) const override {
    return hangs ? make_error(ErrorCode::kUnavailable, path + ": does not answer") : Status();
  }
};

}  // namespace

TEST_CASE("what hinders an output directory is that it is silent, away, or has no place for us") {
  Trainer t;
  t.save(5);
  t.directory.reset();
  Mount mount(t.files);
  run::Surroundings around{mount, t.clock, {}, "test", {}, {}, {}};
  around.make_notifier = t.around.make_notifier;
  const auto directory = must(run::OutputDirectory::open(around, t.settings, "/out"));
  const auto hindrance = [&] {
    t.clock.advance(seconds(20));
    (void)directory->step();
    return directory->hindrance();
  };
  CHECK(hindrance().empty());

  mount.hangs = true;
  CHECK(hindrance() == "/out: does not answer");
  mount.hangs = false;
  CHECK(hindrance().empty());
  must(t.files.rename("/out", "/away"));
  CHECK(hindrance().find("/out") != std::string::npos);
  must(t.files.rename("/away", "/out"));
  CHECK(hindrance().empty());
  t.save(6);
  t.refuse("INSERT ON checkpoint");
  CHECK(hindrance().find("no room") != std::string::npos);
  t.accept();
  CHECK(hindrance().empty());
}

TEST_CASE("a folder of ours that cannot be made hinders only where results are published there") {
  const bool elsewhere = GENERATE(true, false);
  Trainer t;
  if (elsewhere) t.settings.publish.dir = "/published";
  t.start();
  t.save(5);
  t.files.set_read_only("/out");

  for (int i = 0; i < 3; ++i) (void)t.turn();

  INFO(t.directory->hindrance());
  CHECK(t.directory->hindrance().empty() == elsewhere);
}
