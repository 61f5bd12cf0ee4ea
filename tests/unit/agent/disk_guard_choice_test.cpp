// Which leases go where the trainer's disk is short of room, and that nothing else does.
#include <catch2/generators/catch_generators.hpp>
#include <string>
#include <vector>

#include "agent/run/disk_guard.h"
#include "tests/unit/agent/trainer.h"

using namespace evalcar;
using evalcar::test::must;
using evalcar::testing::Trainer;
using std::chrono::seconds;

namespace {

struct Tight : Trainer {
  explicit Tight(std::int64_t keep_best = 0, std::int64_t average_last = 0) {
    settings.publish.keep_best = keep_best;
    settings.publish.metric_for_best_model = "eval/docvqa_val/anls";
    settings.evaluate.average_last = average_last;
    start();
  }
  /// As where a trainer's checkpoints are put away by links.
  void save_links(std::int64_t step, std::int64_t of) {
    const std::string to = "/out/checkpoint-" + std::to_string(step);
    const std::string from = "/out/checkpoint-" + std::to_string(of);
    must(files.make_directory(to, 0755));
    for (const DirectoryEntry& entry : must(files.list(from, 100))) {
      must(files.hard_link(from + "/" + entry.name, to + "/" + entry.name));
    }
  }
  void save_and_remove(const std::vector<std::int64_t>& steps) {
    for (const std::int64_t step : steps) save(step, static_cast<char>('a' + step));
    for (int i = 0; i < 3; ++i) must(turn());
    for (const std::int64_t step : steps) remove(step);
    must(turn());
  }
  /// Of regular weights.
  std::size_t lost() const {
    return must(directory->store().read().evaluations(
                    {.kind = "regular", .states = {state::EvaluationState::kLost}}))
        .size();
  }
  /// Room is short by what one of so many leases holds.
  void lack_one_of(std::uint64_t leases) {
    const std::uint64_t held = directory->stage().held().bytes();
    settings.limits.lease_budget = held - held / leases;
  }
};

}  // namespace

TEST_CASE("a row is lost for room only where its lease goes: averages to come do not keep it") {
  Tight t(0, 5);
  t.save_and_remove({5, 10, 15});
  t.lack_one_of(3);

  for (int i = 0; i < 5; ++i) must(t.turn(seconds(10)));

  CHECK(t.lost() == 1);
  CHECK(t.row(5).state == state::EvaluationState::kLost);
  CHECK(t.directory->stage().names() == std::vector<std::string>{"10-1-regular", "15-1-regular"});
}

TEST_CASE("a row is lost for room only where its lease goes, while not all is recorded") {
  const bool best = GENERATE(false, true);
  INFO((best ? "one is kept as the best" : "averages are to come"));
  Tight t(best ? 1 : 0, best ? 0 : 20);
  t.save_and_remove({5, 10, 15});
  t.lack_one_of(3);
  t.around.stopping = [] { return true; };  // each piece of work takes a turn
  for (std::int64_t step = 20; step < 60; step += 5) t.save(step);

  for (int i = 0; i < 60; ++i) must(t.turn(seconds(i == 0 ? 10 : 1)));

  CHECK(t.lost() == 1);
  CHECK(t.row(5).state == state::EvaluationState::kLost);
  CHECK(t.row(10).state == state::EvaluationState::kLeased);
}

TEST_CASE("what is kept as one of the best is lost to no task while others make room") {
  Tight t(1);
  t.settings.evaluate.tasks = {"docvqa_val", "mmmu_val"};
  t.settings.evaluate.task_every_nth = {{"mmmu_val", 2}};
  t.start();
  t.save_and_remove({5, 10, 15});
  t.publish(t.row(5, "docvqa_val"), 0.5);
  must(t.turn());
  t.lack_one_of(3);

  for (int i = 0; i < 5; ++i) must(t.turn(seconds(10)));

  CHECK(t.row(5, "mmmu_val").state == state::EvaluationState::kLeased);
  CHECK(t.row(10, "docvqa_val").state == state::EvaluationState::kLost);
  CHECK(t.row(15, "mmmu_val").state == state::EvaluationState::kLeased);

  t.settings.limits.lease_budget = 1;
  for (int i = 0; i < 5; ++i) must(t.turn(seconds(10)));
  CHECK(t.directory->stage().names().empty());
  CHECK(t.row(5, "mmmu_val").state == state::EvaluationState::kLost);
  CHECK(t.row(15, "mmmu_val").state == state::EvaluationState::kLost);
  CHECK(must(t.directory->store().read().kept_path(t.row(5, "mmmu_val").checkpoint_id,
                                                   "regular")) == "");
}

TEST_CASE("the lease of two rows goes though the store takes nothing and each turn is short") {
  Tight t;
  t.settings.evaluate.tasks = {"docvqa_val", "mmmu_val"};
  t.settings.evaluate.task_every_nth = {{"mmmu_val", 2}};
  t.start();
  t.save_and_remove({5, 10});
  t.around.stopping = [] { return true; };  // each piece of work takes a turn
  t.settings.limits.min_free = 1000;
  t.files.set_free_bytes(0);
  t.refuse("UPDATE ON evaluation");

  for (int i = 0; i < 10; ++i) (void)t.turn(seconds(10));
  CHECK(t.directory->stage().names().empty());
  CHECK(t.lost() == 0);

  t.accept();
  for (int i = 0; i < 5; ++i) (void)t.turn(seconds(10));
  CHECK(t.lost() == 3);
}

TEST_CASE(
    "an average goes with the oldest weights that it holds, and no others are lost for them") {
  Tight t(0, 2);
  t.save_and_remove({5, 10, 15});
  REQUIRE(t.directory->stage().names().size() == 5);
  t.lack_one_of(3);

  for (int i = 0; i < 5; ++i) must(t.turn(seconds(10)));

  CHECK(t.lost() == 1);
  CHECK(t.directory->stage().names() ==
        std::vector<std::string>{"10-1-regular", "15-1-average", "15-1-regular"});
}

TEST_CASE("an average that frees enough alone is lost alone, and nothing of the best for it") {
  Tight t(2, 3);
  t.save(5);
  must(t.turn());
  t.save_and_remove({10, 15});
  t.publish(t.row(5, "docvqa_val"), 0.1);
  t.publish(t.row(10, "docvqa_val"), 0.9);
  t.publish(t.row(15, "docvqa_val"), 0.8);
  for (int i = 0; i < 3; ++i) must(t.turn());
  t.remove(5);
  must(t.turn());
  REQUIRE(t.directory->stage().names() ==
          std::vector<std::string>{"10-1-regular", "15-1-average", "15-1-regular", "5-1-regular"});
  t.lack_one_of(3);

  for (int i = 0; i < 5; ++i) must(t.turn(seconds(10)));

  CHECK(t.directory->stage().names() == std::vector<std::string>{"10-1-regular", "15-1-regular"});
}

TEST_CASE("what an average is read from frees nothing, so none of the best goes for it") {
  Tight t(2, 2);
  t.save_and_remove({5, 10});
  t.publish(t.row(5, "docvqa_val"), 0.9);
  t.publish(t.row(10, "docvqa_val"), 0.8);
  for (int i = 0; i < 3; ++i) must(t.turn());
  const auto averages = must(t.directory->store().read().evaluations({.kind = "average"}));
  REQUIRE(averages.size() == 1);
  t.directory->set_active(averages.front().id);
  t.settings.limits.lease_budget = 1;

  for (int i = 0; i < 5; ++i) must(t.turn(seconds(10)));
  CHECK(t.directory->stage().names() ==
        std::vector<std::string>{"10-1-average", "10-1-regular", "5-1-regular"});

  t.directory->set_active(std::nullopt);
  for (int i = 0; i < 5; ++i) must(t.turn(seconds(10)));
  CHECK(t.directory->stage().names().empty());
}

TEST_CASE("a row that was published in part keeps its lease while another task waits with it") {
  Tight t;
  t.settings.evaluate.tasks = {"docvqa_val", "textvqa_val", "mmmu_val"};
  t.settings.evaluate.task_every_nth = {{"mmmu_val", 2}};
  t.start();
  t.save_and_remove({5, 10, 15});
  const auto rows = must(t.directory->store().read().evaluations({.step = 15}));
  REQUIRE(rows.size() == 2);
  const state::Evaluation& two = rows[rows[0].settings.tasks.size() == 2 ? 0 : 1];
  t.publish(two, 0.5, "no data");
  t.lack_one_of(3);

  for (int i = 0; i < 5; ++i) must(t.turn(seconds(10)));

  CHECK(t.directory->stage().names() == std::vector<std::string>{"10-1-regular", "15-1-regular"});
  CHECK(must(t.directory->store().read().evaluation(two.id)).lease_path != "");
}

TEST_CASE("what a killed process left goes, though averages have not looked when it is found") {
  Tight t(0, 2);
  t.save_and_remove({5});
  t.directory.reset();
  t.files.put_file("/out/_evalcar/leases/5-1-average/5/model.safetensors", "of a killed process");
  t.around.stopping = [] { return true; };  // each piece of work takes a turn
  for (std::int64_t step = 10; step < 40; step += 5) t.save(step);
  t.start();
  must(t.directory->stage().leave_others({"5-1-regular"}));  // as where the folder can be locked

  for (int i = 0; i < 60; ++i) must(t.turn());

  CHECK_FALSE(t.files.exists("/out/_evalcar/leases/5-1-average"));
  CHECK(t.files.exists("/out/_evalcar/leases/10-1-average"));
}

namespace {

/// Eight leases of the same files.
struct Linked : Tight {
  Linked() {
    save(1);
    for (std::int64_t step = 2; step <= 8; ++step) save_links(step, 1);
    for (int i = 0; i < 3; ++i) must(turn());
    for (std::int64_t step = 1; step <= 8; ++step) remove(step);
    must(turn());
    REQUIRE(directory->stage().names().size() == 8);
    settings.limits.lease_budget = 1;
  }
};

}  // namespace

TEST_CASE("none of the leases of the same files goes while one of them is read from") {
  Linked t;
  t.directory->set_active(t.row(4).id);
  for (int i = 0; i < 5; ++i) must(t.turn(seconds(10)));
  CHECK(t.lost() == 0);

  t.directory->set_active(std::nullopt);
  must(t.turn(seconds(60)));
  CHECK(t.lost() == 8);
}

TEST_CASE("leases of the same files go in one turn: one that stayed could be read from next") {
  Linked t;
  t.files.on_call([&t](const test::Call& call) {
    if (call.operation == "remove_file") t.clock.advance(seconds(1));
  });

  must(t.turn(seconds(10)));

  CHECK(t.lost() == 8);
}

TEST_CASE("a stop does not wait for all leases of the same files") {
  Linked t;
  t.around.stopping = [] { return true; };

  std::size_t left = 8;
  for (int i = 0; i < 30; ++i) {
    must(t.turn(seconds(10)));
    const std::size_t now = t.directory->stage().names().size();
    CHECK(now + 1 >= left);
    CHECK(t.lost() == 8 - now);
    left = now;
  }
  CHECK(left == 0);
}
