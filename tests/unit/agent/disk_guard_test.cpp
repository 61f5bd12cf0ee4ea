// When the disk guard looks for room, and what it does where the store takes nothing.
#include "agent/run/disk_guard.h"

#include <catch2/catch_test_macros.hpp>
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
