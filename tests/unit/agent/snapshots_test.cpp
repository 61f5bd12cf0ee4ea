// Weights between two checkpoints, beside folders of an earlier training.
#include "agent/run/snapshots.h"

#include <catch2/generators/catch_generators.hpp>

#include "agent/request/outbox.h"
#include "store/state/location.h"
#include "tests/unit/agent/trainer.h"

using namespace evalcar;
using evalcar::test::must;
using evalcar::testing::safetensors;
using evalcar::testing::Trainer;
using state::EvaluationState;
using std::chrono::hours;
using std::chrono::seconds;

namespace {

struct Snapshooting : Trainer {
  std::string place = "/shm/" + state::database_stem("/out");

  Snapshooting() {
    settings.watch.snapshot_dir = "/shm";
    settings.evaluate.weights = {"regular"};
    start();
  }
  std::string path_of(std::int64_t step) const {
    return place + "/weights-of-step-" + std::to_string(step);
  }
  void snap(std::int64_t step, char pattern) {
    files.put_file(path_of(step) + "/config.json",
                   R"({"model_type":"qwen2_5_vl","architectures":["X"]})");
    files.put_file(path_of(step) + "/model.safetensors", safetensors(pattern));
  }
  void turns(int count) {
    for (int i = 0; i < count; ++i) must(turn());
  }
  std::vector<state::Evaluation> rows(std::int64_t step) const {
    return must(directory->store().read().evaluations({.step = step}));
  }
  void measure(const state::Evaluation& row) {
    REQUIRE(must(directory->lease_of(row)).has_value());
    publish(row, 0.5);
  }
  request::Answer pin(std::int64_t step) {
    return must(request::ask(files, clock, request::folder_of(settings.store.path),
                             request::Pin{.step = step},
                             {.patience = seconds(60),
                              .agent_there = [] { return true; },
                              .pause = [this](std::chrono::milliseconds) { must(turn()); }}));
  }
  char pinned_pattern(const std::string& name) const {
    const auto held = read_file(files, "/out/_evalcar/pinned/" + name + "/model.safetensors", 4096);
    return held.has_value() ? held->back() : '\0';
  }
  /// An earlier training's folder of the step was measured, and later come weights of this one.
  void snap_beside_an_old_folder(std::int64_t step) {
    save(step, 'a');
    turns(2);
    measure(row(step));
    clock.advance(hours(1));
    snap(step, 'b');
    turns(3);
  }
};

}  // namespace

TEST_CASE("weights of a training that was begun again are measured beside an old folder") {
  Snapshooting t;

  t.snap_beside_an_old_folder(600);

  REQUIRE(t.rows(600).size() == 2);
  const state::Evaluation again = t.rows(600).back();
  CHECK(again.generation == 2);
  REQUIRE(again.state == EvaluationState::kLeased);
  CHECK(must(t.directory->lease_of(again))->dir == "/out/_evalcar/leases/600-2-regular");
  CHECK(t.held_pattern("600-2-regular") == 'b');
  CHECK(t.files.exists("/out/checkpoint-600/model.safetensors"));
}

TEST_CASE("an old folder that is seen again is not what came after the weights of its step") {
  Snapshooting t;
  t.snap_beside_an_old_folder(600);
  const bool before_it_is_measured = GENERATE(true, false);
  if (!before_it_is_measured) {
    t.measure(t.rows(600).back());
    t.turns(3);
    CHECK_FALSE(t.files.exists(t.path_of(600)));
  }

  t.start();
  t.turns(5);

  REQUIRE(t.rows(600).size() == 2);
  CHECK(t.rows(600).front().state == EvaluationState::kPublished);
  const state::Evaluation again = t.rows(600).back();
  CHECK(again.generation == 2);
  CHECK(again.state ==
        (before_it_is_measured ? EvaluationState::kLeased : EvaluationState::kPublished));
  t.clock.advance(seconds(60));
  t.save(600, 'c');  // the save that comes later is
  t.turns(60);
  REQUIRE(t.rows(600).size() == 3);
  CHECK(t.rows(600).back().generation == 3);
  CHECK(t.held_pattern("600-3-regular") == 'c');
}

TEST_CASE("with other settings, too, an old folder is not measured after the weights of its step") {
  Snapshooting t;
  t.snap_beside_an_old_folder(600);
  t.measure(t.rows(600).back());
  t.turns(3);

  t.settings.evaluate.limit = 4;
  t.start();
  t.turns(5);

  for (const state::Evaluation& row : t.rows(600)) {
    INFO(row.generation << " " << state::state_name(row.state) << " " << row.settings_sha256);
    CHECK((row.generation == 2 || row.state == EvaluationState::kPublished));
  }
}

TEST_CASE("the lease of weights whose files are gone is not taken from an old folder of the step") {
  Snapshooting t;
  t.save(600, 'a');
  t.turns(2);
  t.clock.advance(hours(1));
  t.snap(600, 'b');
  t.turns(3);
  const state::Evaluation again = t.rows(600).back();
  must(remove_tree(t.files, t.path_of(600)));

  CHECK_FALSE(must(t.directory->lease_of(again)).has_value());

  CHECK(t.rows(600).back().state == EvaluationState::kLost);
}

TEST_CASE("weights whose step has a folder that is not older are not needed") {
  Snapshooting t;
  t.snap(600, 'b');
  t.clock.advance(seconds(5));
  t.save(600, 'b');

  t.turns(3);

  CHECK(t.rows(600).size() == 1);
  CHECK(t.row(600).generation == 1);
  CHECK_FALSE(t.files.exists(t.path_of(600)));
}

TEST_CASE("weights beside a folder that is not whole are measured once nothing moves in it") {
  Snapshooting t;
  t.save(600, 'a');
  t.files.put_file("/out/checkpoint-600/model.safetensors", "torn");
  t.clock.advance(hours(1));
  t.snap(600, 'b');
  t.turns(3);
  CHECK(t.rows(600).size() == 1);
  CHECK(t.files.exists(t.path_of(600)));

  t.turns(60);

  REQUIRE(t.rows(600).size() == 2);
  CHECK(t.rows(600).back().state == EvaluationState::kLeased);
}

TEST_CASE("a pin keeps the folder that is there where the weights measured after it are gone") {
  Snapshooting t;
  t.snap_beside_an_old_folder(600);
  t.measure(t.rows(600).back());
  t.turns(3);
  REQUIRE_FALSE(t.files.exists(t.path_of(600)));

  const request::Answer answer = t.pin(600);

  CHECK(answer.outcome == request::Outcome::kDone);
  CHECK(answer.text.find("regular ones are those of an older save") != std::string::npos);
  CHECK(t.pinned_pattern("600-1-regular") == 'a');
  t.remove(600);
  t.turns(3);
  CHECK(t.pin(600).outcome == request::Outcome::kDone);
  CHECK(t.pinned_pattern("600-1-regular") == 'a');
}

TEST_CASE("a pin keeps weights that lie elsewhere and wait, and says nothing of an older save") {
  Snapshooting t;
  t.snap_beside_an_old_folder(600);
  REQUIRE(t.rows(600).back().state == EvaluationState::kLeased);

  const request::Answer answer = t.pin(600);

  INFO(answer.text);
  CHECK(answer.outcome == request::Outcome::kDone);
  CHECK(answer.text.find("older") == std::string::npos);
  t.measure(t.rows(600).back());
  t.turns(3);
  CHECK_FALSE(t.files.exists(t.path_of(600)));
  CHECK(t.pinned_pattern("600-2-regular") == 'b');
}

TEST_CASE(
    "a lost database takes weights that lie elsewhere back as those, and measures them once") {
  Snapshooting t;
  t.save(100);
  t.turns(2);
  t.snap(600, 'b');
  t.turns(3);
  REQUIRE(t.row(600).state == EvaluationState::kLeased);

  t.lose_database();
  must(t.turn());
  const state::Evaluation row = t.row(600);
  REQUIRE(must(t.directory->lease_of(row)).has_value());
  must(t.directory->store().begin_attempt(row.id, "cpu"));
  t.turns(3);

  CHECK(t.row(600).state == EvaluationState::kLoading);
  CHECK(t.row(600).checkpoint_path == t.path_of(600));
  CHECK(t.directory->take_superseded().empty());
  CHECK(t.files.exists(t.path_of(600)));
}

TEST_CASE(
    "a lost database does not measure an old folder as the step whose weights were published") {
  Snapshooting t;
  const bool has_mark = GENERATE(true, false);
  t.save(600, 'a');
  if (!has_mark) must(t.files.remove_file("/out/checkpoint-600/trainer_state.json"));
  t.turns(40);
  t.clock.advance(hours(1));
  t.snap(600, 'b');
  t.turns(3);
  REQUIRE(t.rows(600).front().state == EvaluationState::kSuperseded);
  t.measure(t.rows(600).back());
  t.turns(3);

  t.lose_database();
  t.turns(60);

  CHECK(t.row(600).state == EvaluationState::kPublished);
  CHECK(t.row(600).generation == 2);
  t.clock.advance(seconds(60));
  t.save(600, 'c');
  t.turns(60);
  CHECK(t.rows(600).back().generation == 3);
  CHECK(t.held_pattern("600-3-regular") == 'c');
}
