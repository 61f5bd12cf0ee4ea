// What becomes complete while nothing can be recorded: retention goes on meanwhile.
#include <catch2/generators/catch_generators.hpp>
#include <string>
#include <vector>

#include "agent/run/output_directory.h"
#include "tests/unit/agent/trainer.h"

using namespace evalcar;
using evalcar::test::must;
using evalcar::testing::Trainer;
using std::chrono::seconds;

TEST_CASE("a checkpoint that came and went while nothing could be recorded is measured") {
  const bool at_once = GENERATE(false, true);
  INFO((at_once ? "the next turn fails" : "turns are paused"));
  Trainer t;
  t.save(5);
  must(t.turn());
  t.refuse("INSERT ON checkpoint");
  if (!at_once) {
    t.save(7);
    CHECK_FALSE(t.turn().has_value());
  }
  t.save(10);

  const Status turn = t.turn();
  CHECK(turn.has_value() != at_once);
  t.remove(10);
  must(t.turn());
  t.accept();
  for (int i = 0; i < 6; ++i) must(t.turn());

  const state::Evaluation row = t.row(10);
  CHECK(row.state == state::EvaluationState::kLeased);
  CHECK(must(t.directory->lease_of(row)).has_value());
}

TEST_CASE("what is held until it can be recorded goes where nobody wants it") {
  Trainer t;
  t.settings.evaluate.eval_strategy = config::EvalStrategy::kSteps;
  t.settings.evaluate.eval_steps = 5;
  t.start();
  t.save(5);
  must(t.turn());
  t.save(7);
  t.refuse("INSERT ON checkpoint");
  CHECK_FALSE(t.turn().has_value());
  CHECK(t.directory->stage().names() == std::vector<std::string>{"5-1-regular", "7-1-regular"});
  t.accept();

  for (int i = 0; i < 6; ++i) must(t.turn(seconds(10)));

  CHECK(t.row(7).state == state::EvaluationState::kSkipped);
  CHECK(t.directory->stage().names() == std::vector<std::string>{"5-1-regular"});
}

TEST_CASE("what is held until it can be recorded is measured though its delete takes long") {
  Trainer t;
  t.save(5);
  must(t.turn());
  t.save(10);
  t.refuse("INSERT ON checkpoint");
  CHECK_FALSE(t.turn().has_value());
  must(t.files.remove_file("/out/checkpoint-10/model.safetensors"));
  for (int i = 0; i < 9; ++i) (void)t.turn(seconds(1));  // told as not whole any more
  t.remove(10);
  (void)t.turn();
  t.accept();

  for (int i = 0; i < 6; ++i) must(t.turn(seconds(10)));

  CHECK(t.row(10).state == state::EvaluationState::kLeased);
}

TEST_CASE("what is held until it can be recorded goes where the trainer's disk is short") {
  Trainer t;
  t.settings.limits.min_free = 1000;
  t.files.set_free_bytes(100000);
  t.start();
  t.save(5);
  must(t.turn());
  t.save(10);
  t.refuse("INSERT ON checkpoint");
  CHECK_FALSE(t.turn().has_value());
  REQUIRE(t.directory->stage().names() == std::vector<std::string>{"10-1-regular", "5-1-regular"});
  t.files.set_free_bytes(10);

  (void)t.turn();

  CHECK_FALSE(t.files.exists("/out/_evalcar/leases/10-1-regular"));
}

TEST_CASE(
    "a lease that could not be written down is found when the trainer has removed its files") {
  Trainer t;
  t.save(5);
  t.refuse("UPDATE OF lease_path ON evaluation");
  CHECK_FALSE(t.turn().has_value());
  REQUIRE(t.directory->stage().names() == std::vector<std::string>{"5-1-regular"});
  t.remove(5);
  must(t.turn());
  t.accept();

  for (int i = 0; i < 6; ++i) must(t.turn(seconds(10)));

  CHECK(t.row(5).state == state::EvaluationState::kLeased);
}

TEST_CASE(
    "a checkpoint that came and went while nothing could be recorded, on a full disk, is lost, not "
    "forgotten") {
  Trainer t;
  t.settings.limits.min_free = 1000;
  t.files.set_free_bytes(10);
  t.save(5);
  must(t.turn());
  t.save(10);

  t.refuse("INSERT ON checkpoint");
  CHECK_FALSE(t.turn().has_value());
  t.remove(10);
  must(t.turn());
  t.accept();
  for (int i = 0; i < 6; ++i) must(t.turn());

  CHECK(t.row(10).state == state::EvaluationState::kLost);
  CHECK(t.row(10).reason.find("removed before it could be leased") != std::string::npos);
}

TEST_CASE("the n-th counts what came and went while nothing could be recorded") {
  Trainer t;
  t.settings.evaluate.every_nth = 2;
  t.start();
  for (std::int64_t step = 1; step <= 5; ++step) {
    t.save(step);
    for (int i = 0; i < 3; ++i) must(t.turn());
  }
  t.refuse("INSERT ON checkpoint");
  for (std::int64_t step = 6; step <= 8; ++step) {
    t.save(step);
    for (int i = 0; i < 12; ++i) (void)t.turn();
    t.remove(step);
    for (int i = 0; i < 3; ++i) (void)t.turn();
  }
  t.accept();

  for (int i = 0; i < 6; ++i) must(t.turn(seconds(10)));

  CHECK(t.row(6).state == state::EvaluationState::kSkipped);
  CHECK(t.row(7).state == state::EvaluationState::kLeased);
  CHECK(t.row(8).state == state::EvaluationState::kSkipped);
}

TEST_CASE("what is held is what the checkpoint was last, or nothing") {
  Trainer t;
  t.save(5);
  must(t.turn());
  t.refuse("INSERT ON checkpoint");
  const auto hold = [&t](char pattern) {
    t.save(10, pattern);
    for (int i = 0; i < 12; ++i) (void)t.turn();
    CHECK(t.held_pattern("10-1-regular") == pattern);
    t.remove(10);
    for (int i = 0; i < 3; ++i) (void)t.turn();
  };
  hold('a');
  hold('b');
  t.accept();

  for (int i = 0; i < 6; ++i) must(t.turn(seconds(10)));

  CHECK(t.row(10).state == state::EvaluationState::kLeased);
  CHECK(t.held_pattern("10-1-regular") == 'b');
}

TEST_CASE("a part of a lease, left by a kill, is made whole while nothing can be recorded") {
  Trainer t;
  t.save(5);
  must(t.turn());
  t.files.put_file("/out/_evalcar/leases/10-1-regular/config.json", "{}");
  t.refuse("INSERT ON checkpoint");
  t.save(10);

  for (int i = 0; i < 12; ++i) (void)t.turn();

  CHECK(t.held_pattern("10-1-regular") == 'a');
}

TEST_CASE("what is held becomes the row's lease as it is, while the trainer removes the rest") {
  Trainer t;
  t.save(5);
  must(t.turn());
  t.refuse("INSERT ON checkpoint");
  t.save(10);
  for (int i = 0; i < 12; ++i) (void)t.turn();
  REQUIRE(t.held_pattern("10-1-regular") == 'a');
  t.accept();
  bool removed = false;
  t.files.on_call([&](const test::Call& call) {
    const bool changes = call.operation == "hard_link" || call.operation == "remove_file";
    if (removed || !changes) return;
    removed = true;
    t.remove(10);
  });

  for (int i = 0; i < 6; ++i) must(t.turn(seconds(10)));

  CHECK(t.row(10).state == state::EvaluationState::kLeased);
  CHECK(t.held_pattern("10-1-regular") == 'a');
}

TEST_CASE("a copy that is kept as one of the best stays while nothing can be recorded") {
  Trainer t;
  t.settings.publish.keep_best = 1;
  t.settings.publish.metric_for_best_model = "eval/docvqa_val/anls";
  t.settings.limits.lease_budget = 1 << 20;
  t.files.on_call([&t](const test::Call& call) {
    if (call.operation == "hard_link") t.files.fail_operation("hard_link", EPERM);
  });
  t.start();
  t.save(10);
  must(t.turn());
  t.publish(t.row(10), 0.5);
  must(t.turn());
  REQUIRE(t.held_pattern("10-1-regular") == 'a');
  t.start();
  t.refuse("INSERT ON checkpoint_kind");

  for (int i = 0; i < 12; ++i) (void)t.turn();

  CHECK(t.held_pattern("10-1-regular") == 'a');
}

TEST_CASE("what was held, rewritten and held again stays held, whatever the guard looks for") {
  Trainer t;
  t.settings.limits.lease_budget = 1;
  t.start();
  t.save(5);
  must(t.turn());
  t.refuse("INSERT ON checkpoint");
  for (const char pattern : {'a', 'b'}) {
    t.save(10, pattern);
    for (int i = 0; i < 40; ++i) (void)t.turn();
    CHECK(t.held_pattern("10-1-regular") == pattern);
  }
}

TEST_CASE(
    "a new folder of a checkpoint that was there in part is measured once it can be recorded") {
  Trainer t;
  t.save(5);
  must(t.turn());
  t.save(10);
  must(t.files.remove_file("/out/checkpoint-10/trainer_state.json"));
  must(t.turn());
  REQUIRE(t.row(10).state == state::EvaluationState::kFound);
  t.refuse("INSERT ON checkpoint");
  t.remove(10);
  t.save(10, 'b');
  t.wait_until_held("10-2-regular", 'b');
  t.remove(10);
  (void)t.turn();
  t.accept();

  for (int i = 0; i < 6; ++i) must(t.turn(seconds(10)));

  const auto rows = must(t.directory->store().read().evaluations({.step = 10}));
  REQUIRE(rows.size() == 2);
  CHECK(rows.back().generation == 2);
  INFO(rows.back().reason);
  CHECK(rows.back().state == state::EvaluationState::kLeased);
  CHECK(base_name(rows.back().lease_path) == "10-2-regular");
}
