// What a question costs as a history grows: counted in instructions of SQLite's machine, which are
// the same on every machine.
#include <cstdlib>
#include <functional>
#include <map>
#include <new>
#include <set>

#include "store/state/sqlite.h"
#include "tests/unit/state/scenario.h"
#include "tests/unit/support/sqlite_work.h"

using namespace evalcar;
using namespace evalcar::test;
using enum state::EvaluationState;

namespace {

constexpr std::int64_t kSteps = 60;

std::int64_t allocations = 0;  // of this process

/// A history of so many checkpoints, each measured or still waiting.
struct History {
  explicit History(std::int64_t steps, state::EvaluationState last = kScored) {
    for (std::int64_t step = 1; step <= steps; ++step) {
      ids.push_back(s.plan(step).id);
      s.bring(ids.back(), step == steps ? last : kScored, "w" + std::to_string(step));
    }
  }
  SqliteWork work;
  Scenario s;
  std::vector<std::int64_t> ids;

  std::int64_t steps_of(const std::function<void()>& question) {
    question();  // its statements are prepared
    work.take_steps();
    question();
    return work.take_steps();
  }
};

}  // namespace

// None is inlined: g++ would take a part of the pair for the wrong one.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  void* const made = std::malloc(size == 0 ? 1 : size);
  if (made == nullptr) std::abort();
  return made;
}
[[gnu::noinline]] void operator delete(void* made) noexcept { std::free(made); }
[[gnu::noinline]] void operator delete(void* made, std::size_t) noexcept { std::free(made); }

TEST_CASE("settings that many rows have are parsed once, and each row has its own") {
  const auto cost = [](const std::string& other_task) {
    Scenario s;
    for (std::int64_t step = 1; step <= kSteps; ++step) {
      s.plan(step, {step % 2 == 0 ? other_task : "docvqa_val"});
    }
    const std::int64_t before = allocations;
    std::int64_t rows = 0;
    must(s.store->read().for_each_evaluation({}, [&](const state::Evaluation& row) {
      rows += row.settings.tasks.front() == (row.step % 2 == 0 ? other_task : "docvqa_val") ? 1 : 0;
    }));
    CHECK(rows == kSteps);
    return allocations - before;
  };

  const std::int64_t parsed_each_time = cost("mmmu_val");

  CHECK(cost("docvqa_val") < parsed_each_time / 2);
}

TEST_CASE("where all evaluations stand is asked with a fraction of the work, and says the same") {
  History h(kSteps, kLeased);
  h.s.plan(kSteps + 1, {"mmmu_val"}, "ema");
  const state::Reader& rows = h.s.store->read();
  const auto whole = must(rows.evaluations({.run_id = h.s.run.id}));
  std::map<std::int64_t, state::Standing> at;
  const auto ask = [&](const state::EvaluationFilter& filter) {
    at.clear();
    must(rows.for_each_standing(filter, [&at](const state::Standing& row) { at[row.id] = row; }));
  };

  ask({.run_id = h.s.run.id});

  CHECK(at.size() == whole.size());
  for (const state::Evaluation& row : whole) {
    const state::Standing& same = at.at(row.id);
    CHECK(same.step == row.step);
    CHECK(same.kind == row.kind);
    CHECK(same.settings == row.settings);
    CHECK(same.settings_sha256 == row.settings_sha256);
    CHECK(same.state == row.state);
    CHECK(same.lease_path == row.lease_path);
    CHECK(same.attempts == row.attempts);
    CHECK(same.created_at == row.created_at);
  }
  const state::EvaluationFilter waiting = {.run_id = h.s.run.id, .states = {kScored, kFound}};
  const std::int64_t of_whole_rows = h.steps_of([&] { must(rows.evaluations(waiting)); });
  CHECK(h.steps_of([&] { ask(waiting); }) * 2 < of_whole_rows);
  ask({.states = {kLeased}, .with_lease = true});
  CHECK(at.size() == 1);
  CHECK(at.contains(h.ids.back()));
}

TEST_CASE("evaluations that are asked for by their numbers come alone, in their order") {
  History h(kSteps);
  const state::Reader& rows = h.s.store->read();

  const auto found = must(rows.evaluations(
      {.run_id = h.s.run.id, .ids = std::vector<std::int64_t>{h.ids[7], h.ids[2], 4'000}}));

  REQUIRE(found.size() == 2);
  CHECK(found[0].id == h.ids[2]);
  CHECK(found[1].id == h.ids[7]);
  CHECK(must(rows.evaluations({.ids = std::vector<std::int64_t>()})).empty());
  CHECK(must(rows.evaluations({.run_id = h.s.run.id + 1, .ids = h.ids})).empty());
  const auto one = [&] {
    must(rows.evaluations({.run_id = h.s.run.id, .ids = std::vector{h.ids[7]}}));
  };
  CHECK(h.steps_of(one) < 250);
}

TEST_CASE("a question about one row looks at no other, however many there are") {
  const auto cost = [](std::int64_t steps) {
    History h(steps, kLeased);
    const state::Reader& rows = h.s.store->read();
    return h.steps_of([&] {
      const state::Evaluation row = must(rows.evaluation(h.ids.back()));
      CHECK(must(rows.checkpoint(row.checkpoint_id)).step == steps);
      CHECK(must(rows.evaluations({.checkpoint_id = row.checkpoint_id, .kind = row.kind})).size() ==
            1);
      CHECK(must(rows.evaluations({.run_id = h.s.run.id, .step = steps})).size() == 1);
      CHECK(must(rows.evaluations({.run_id = h.s.run.id, .states = {kLeased, kFailed}})).size() ==
            1);
    });
  };

  CHECK(cost(kSteps) <= cost(3) + 10);
}

TEST_CASE("the next line's number is found without a look at the lines before") {
  const auto cost = [](std::int64_t steps) {
    History h(steps);
    const auto line = [](std::int64_t seq, const auto&) -> Result<std::string> {
      return std::to_string(seq);
    };
    for (std::size_t i = 0; i + 1 < h.ids.size(); ++i) {
      must(h.s.store->begin_publication(h.ids[i], 0, line));
      must(h.s.store->finish_publication(h.ids[i], {}));
    }
    h.work.take_steps();
    CHECK(must(h.s.store->begin_publication(h.ids.back(), 0, line)).seq == steps);
    return h.work.take_steps();
  };

  CHECK(cost(kSteps) <= cost(3) + 10);
}

TEST_CASE(
    "which evaluations have changed is told once, and not told wrongly where it is not known") {
  Scenario s;
  const state::Reader& rows = s.store->read();
  const std::int64_t first = s.plan(1).id;
  CHECK_FALSE(must(rows.changed_evaluations()).has_value());
  CHECK(must(rows.changed_evaluations()) == std::set<std::int64_t>());

  const std::int64_t second = s.plan(2).id;
  s.bring(first, kScored, "w");
  CHECK(must(rows.changed_evaluations()) == std::set{first, second});
  CHECK(must(rows.changed_evaluations()) == std::set<std::int64_t>());

  const auto by_hand = [&s](const std::string& sql) {
    const auto other =
        must(state::Connection::open(s.db(), state::Connection::Mode::kReadWriteCreate, 1000));
    must(other->execute(sql));
  };
  by_hand("UPDATE evaluation SET reason = 'by hand'");
  CHECK_FALSE(must(rows.changed_evaluations()).has_value());
  CHECK(must(rows.changed_evaluations()) == std::set<std::int64_t>());

  for (std::int64_t step = 3; step < 1200; ++step) s.plan(step);
  CHECK_FALSE(must(rows.changed_evaluations()).has_value());
  const std::int64_t last = s.plan(1200).id;
  CHECK(must(rows.changed_evaluations()) == std::set{last});
}

TEST_CASE("which leases a step has, of whatever run, is asked of its rows alone") {
  const auto cost = [](std::int64_t steps) {
    History h(steps, kLeased);
    std::size_t found = 0;
    state::EvaluationFilter filter{.step = steps, .kind = "regular", .with_lease = true};
    filter.states = {kScored, kLeased};
    const std::int64_t work =
        h.steps_of([&] { found = must(h.s.store->read().lease_paths(filter)).size(); });
    CHECK(found == 1);
    return work;
  };
  CHECK(cost(4 * kSteps) <= cost(kSteps) + 10);
}
