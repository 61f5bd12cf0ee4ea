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
