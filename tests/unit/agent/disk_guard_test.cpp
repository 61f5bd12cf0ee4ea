// What goes where the trainer's disk is short of room, and that nothing else does.
#include "agent/run/disk_guard.h"

#include <catch2/generators/catch_generators.hpp>
#include <string>
#include <vector>

#include "tests/unit/agent/trainer.h"
#include "tests/unit/support/forwarding_file_system.h"

using namespace evalcar;
using evalcar::test::must;
using evalcar::testing::FakeNotifier;
using evalcar::testing::Trainer;
using std::chrono::seconds;

namespace {

/// Four leases of checkpoints that are gone; `left`: how many of them fit in the budget.
struct Full : Trainer {
  Full() {
    for (const std::int64_t step : {5, 10, 15, 20}) save(step);
    for (int i = 0; i < 3; ++i) must(turn());
    for (const std::int64_t step : {5, 10, 15}) remove(step);
    must(turn(seconds(10)));
    settings.limits.min_free = 1000;
  }
  /// The database is on the disk that is full.
  void fill() {
    files.set_free_bytes(0);
    on_database(
        "CREATE TRIGGER full_1 BEFORE UPDATE ON evaluation BEGIN SELECT RAISE(ABORT, 'full'); END");
    on_database(
        "CREATE TRIGGER full_2 BEFORE UPDATE ON checkpoint_kind BEGIN SELECT RAISE(ABORT, 'full'); "
        "END");
    refuse("INSERT ON checkpoint");
  }
  void make_room() {
    files.set_free_bytes(1U << 20U);
    accept();
    on_database("DROP TRIGGER full_1");
    on_database("DROP TRIGGER full_2");
  }
};

}  // namespace

TEST_CASE("leases are given up though the store takes nothing, and the rows end once it does") {
  Full t;
  t.start();
  must(t.turn());
  t.save(25);
  t.fill();

  for (int i = 0; i < 10; ++i) (void)t.turn();

  CHECK(t.directory->stage().names() == std::vector<std::string>{"20-1-regular"});
  CHECK(t.row(5).state == state::EvaluationState::kLeased);
  t.make_room();
  for (int i = 0; i < 6; ++i) (void)t.turn();
  for (const std::int64_t step : {5, 10, 15}) {
    CHECK(t.row(step).state == state::EvaluationState::kLost);
    CHECK(t.row(step).reason.find("its lease was given up: free disk space") != std::string::npos);
    CHECK(t.row(step).lease_path.empty());
  }
  CHECK(t.row(20).state == state::EvaluationState::kLeased);
  CHECK(t.row(25).state == state::EvaluationState::kLeased);
}

TEST_CASE("a lease that went before its row could say so is lost after a kill, too") {
  Full t;
  t.start();
  must(t.turn());
  t.fill();
  for (int i = 0; i < 10; ++i) (void)t.turn();
  t.directory.reset();
  t.make_room();
  t.start();
  for (int i = 0; i < 3; ++i) must(t.turn());

  CHECK_FALSE(must(t.directory->lease_of(t.row(5))).has_value());

  CHECK(t.row(5).state == state::EvaluationState::kLost);
  CHECK(t.row(5).reason.find("its files are gone") != std::string::npos);
}

TEST_CASE("the store refuses while only the budget is short: the lease stays with its row") {
  Full t;
  t.settings.limits.lease_budget = 1;
  t.settings.limits.min_free = 0;
  t.start();
  t.fill();

  for (int i = 0; i < 10; ++i) (void)t.turn();

  CHECK(t.directory->stage().names().size() == 4);
}

TEST_CASE("room is looked for as soon as what a lease holds was deleted, not seconds later") {
  Trainer t;
  t.settings.limits.min_free = 1000;
  t.start();
  t.files.set_free_bytes(0);
  t.save(5);
  must(t.turn());
  must(t.turn());
  CHECK(t.directory->stage().names().size() == 1);

  t.remove(5);
  t.save(10);
  must(t.turn());

  CHECK(t.row(5).state == state::EvaluationState::kLost);
  CHECK(t.row(10).state == state::EvaluationState::kLeased);
}

namespace {

/// Counts looks at the folder of all leases, each of which may take a while.
class WatchedLeases final : public test::ForwardingFileSystem {
 public:
  WatchedLeases(FileSystem& below, test::FakeClock& clock)
      : ForwardingFileSystem(below), clock_(clock) {}
  Result<std::vector<DirectoryEntry>> list(const std::string& path,
                                           std::size_t limit) const override {
    if (path.ends_with("/leases")) {
      ++looks;
      clock_.advance(cost);
    }
    return below().list(path, limit);
  }
  mutable int looks = 0;
  seconds cost{0};

 private:
  test::FakeClock& clock_;
};

struct Leased : Trainer {
  WatchedLeases watched{files, clock};
  run::Surroundings surroundings{watched, clock, {}, "test", {}, {}, {}};

  Leased() {
    surroundings.make_notifier = [] { return std::make_unique<FakeNotifier>(); };
    for (const std::int64_t step : {5, 10, 15}) save(step);
  }
  void begin() {
    directory.reset();
    directory = must(run::OutputDirectory::open(surroundings, settings, "/out"));
    for (int i = 0; i < 3; ++i) must(turn());
    watched.looks = 0;
  }
};

}  // namespace

TEST_CASE("while the trainer has its room, no lease is asked what it holds") {
  Leased t;
  t.settings.limits.min_free = 1000;
  t.files.set_free_bytes(1000);
  t.begin();

  for (int i = 0; i < 10; ++i) must(t.turn(seconds(10)));
  CHECK(t.watched.looks == 0);

  t.files.set_free_bytes(999);
  must(t.turn(seconds(10)));
  CHECK(t.watched.looks > 0);
}

TEST_CASE("what leases hold under a budget is asked for a small part of the time") {
  Leased t;
  t.settings.limits.lease_budget = 1U << 30U;
  t.begin();

  for (int i = 0; i < 20; ++i) must(t.turn(seconds(1)));
  CHECK(t.watched.looks == 4);  // every 5 s

  t.watched.looks = 0;
  t.watched.cost = seconds(1);
  for (int i = 0; i < 60; ++i) must(t.turn(seconds(1)));
  CHECK(t.watched.looks <= 4);
  CHECK(t.watched.looks >= 2);

  t.settings.limits.min_free = 1000;
  t.files.set_free_bytes(999);
  t.watched.looks = 0;
  for (int i = 0; i < 5; ++i) must(t.turn(seconds(5)));
  CHECK(t.watched.looks >= 5);  // the trainer's room does not wait
}

TEST_CASE("looks that take longer than a slice keep no turn from giving up all that must go") {
  Leased t;
  t.begin();
  for (const std::int64_t step : {5, 10, 15}) t.remove(step);
  must(t.turn());
  t.watched.cost = seconds(1);
  t.settings.limits.min_free = 1000;
  t.files.set_free_bytes(0);

  must(t.turn(seconds(10)));

  CHECK(t.directory->stage().names().empty());
}

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
          std::vector<std::string>{"10-1-regular", "15-1-average", "15-1-regular"});
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
