// The third series where training was resumed from an older step: no mean is of both lines.
#include <algorithm>
#include <catch2/generators/catch_generators.hpp>
#include <map>
#include <string>
#include <vector>

#include "agent/run/output_directory.h"
#include "tests/unit/agent/averaging.h"

using namespace evalcar;
using evalcar::test::must;
using evalcar::testing::Averaging;
using evalcar::testing::safetensors;
using state::EvaluationState;
using std::chrono::seconds;

TEST_CASE("an average waits for a member that is written anew, and is not of its new weights") {
  const bool in_place = GENERATE(false, true);
  Averaging t(2);
  for (const std::int64_t step : {5, 10}) t.save(step);
  t.turns(3);
  t.publish_all();
  if (!in_place) must(t.files.remove_file("/out/checkpoint-10/model.safetensors"));
  t.files.put_file("/out/checkpoint-10/model.safetensors", "half");
  must(t.files.remove_file("/out/checkpoint-10/trainer_state.json"));
  t.turns(1);
  t.save(15);
  t.turns(3);
  CHECK(t.averages().size() == 1);

  t.files.put_file("/out/checkpoint-10/model.safetensors", safetensors('n'));
  t.files.put_file("/out/checkpoint-10/trainer_state.json", "{}");
  t.turns(60);

  const auto rows = t.averages();
  INFO(rows.back().step << ": " << rows.back().reason);
  REQUIRE(rows.back().step == 15);
  CHECK(rows.back().state == EvaluationState::kSkipped);
  CHECK(rows.back().reason.find("checkpoint-10 was written anew after checkpoint-15") !=
        std::string::npos);
}

TEST_CASE("an average is not of a member that a resumed training wrote anew, nor of half of it") {
  const bool restarted = GENERATE(false, true);
  Averaging t(2);
  for (const std::int64_t step : {5, 10}) t.save(step);
  t.turns(3);
  t.Trainer::save(5, 'n');  // in place, and so in the lease
  if (restarted) t.start();

  for (int i = 0; i < 40; ++i) {
    must(t.directory->lease_of(t.averages().front()));
    t.turns(1);
  }

  const state::Evaluation row = t.averages().front();
  INFO(row.reason);
  CHECK(row.state == EvaluationState::kSkipped);
  CHECK(row.reason.find("checkpoint-5 was written anew") != std::string::npos);
}

TEST_CASE("no average is of a checkpoint that a resumed training left behind") {
  const bool restarted = GENERATE(false, true);
  Averaging t(2);
  for (const std::int64_t step : {5, 10, 15, 20}) t.save(step);
  t.turns(3);
  t.publish_all();
  if (restarted) t.directory.reset();
  for (const std::int64_t step : {15, 20}) t.remove(step);
  if (restarted) {
    t.save(12);
    t.start();
  }
  t.turns(3);

  for (const std::int64_t step : {12, 17, 25, 30}) {
    if (!restarted || step > 12) t.save(step);
    t.turns(3);
    t.publish_all();
  }
  std::map<std::int64_t, std::string> found;
  for (const state::Evaluation& row : t.averages()) {
    if (row.state == EvaluationState::kSkipped) {
      CHECK(row.reason.find("left behind") != std::string::npos);
      found[row.step] = "none";
    } else if (row.step > 20 || row.step == 12 || row.step == 17) {
      REQUIRE(row.state == EvaluationState::kLeased);
      found[row.step] = t.members(row).front();
    }
  }
  CHECK(found ==
        std::map<std::int64_t, std::string>{{12, "10"}, {17, "none"}, {25, "none"}, {30, "25"}});
}

TEST_CASE("a training that was resumed, with the same steps, has all of its averages") {
  Averaging t(2);
  for (const std::int64_t step : {5, 10, 15, 20}) t.save(step);
  t.turns(3);
  t.publish_all();
  for (const std::int64_t step : {10, 15, 20}) t.remove(step);
  t.turns(3);

  for (std::int64_t step = 10; step <= 30; step += 5) {
    t.Trainer::save(step, 'n');
    if (step > 10) t.remove(step - 5);  // one is kept
    t.turns(3);
    t.publish_all();
    t.turns(1);
  }

  const auto rows = t.averages();
  for (auto row = rows.begin(); row != rows.end(); ++row) {
    const bool of_new_line = row->step > 20 || row->generation == 2;
    if (!of_new_line) continue;
    INFO(row->step << ": " << row->reason);
    REQUIRE(row->state == EvaluationState::kLeased);
    const auto members = t.members(*row);
    CHECK(members == std::vector{std::to_string(row->step - 5), std::to_string(row->step)});
    for (const std::string& member : members) {
      const std::string weights = row->lease_path + "/members/" + member + "/model.safetensors";
      const char pattern = must(read_file(t.files, weights, 4096)).back();
      CHECK(pattern == (member == "5" ? static_cast<char>('a' + 5) : 'n'));
    }
  }
  CHECK(std::ranges::count_if(rows, [](const auto& row) { return row.step > 20; }) == 2);
  CHECK(std::ranges::count_if(rows, [](const auto& row) { return row.generation == 2; }) == 3);
}

TEST_CASE("a training that was resumed over what is still there has all of its averages") {
  Averaging t(2);
  for (std::int64_t step = 5; step <= 40; step += 5) t.save(step);
  t.turns(3);
  t.publish_all();

  for (std::int64_t step = 15; step <= 45; step += 5) {
    t.Trainer::save(step, 'n');
    if (step > 15) t.remove(step - 5);
    t.turns(3);
    t.publish_all();
    t.turns(1);
  }

  std::size_t formed = 0;
  for (const state::Evaluation& row : t.averages()) {
    if (row.step <= 40 && row.generation == 1) continue;
    INFO(row.step << ": " << row.reason);
    REQUIRE(row.state == EvaluationState::kLeased);
    CHECK(t.members(row) == std::vector{std::to_string(row.step - 5), std::to_string(row.step)});
    ++formed;
  }
  CHECK(formed == 7);
}

TEST_CASE("a run that was copied to its place again was not resumed in the middle") {
  Averaging t(2);
  for (const std::int64_t step : {5, 10, 15}) t.save(step);
  t.turns(3);
  t.publish_all();
  t.directory.reset();
  for (const std::int64_t step : {10, 15, 5}) {  // by name
    t.clock.advance(seconds(1));
    t.remove(step);
    t.Trainer::save(step, 'n');
  }
  t.start();

  t.turns(5);

  std::size_t formed = 0;
  for (const state::Evaluation& row : t.averages()) {
    if (row.generation == 1) continue;
    INFO(row.step << ": " << row.reason);
    CHECK(row.state == EvaluationState::kLeased);
    ++formed;
  }
  CHECK(formed == 2);
}

TEST_CASE("what a resumed training left behind has no average with what came in its place") {
  Averaging t(2);
  for (const std::int64_t step : {5, 10, 15, 20}) t.save(step);
  t.turns(3);
  const state::Evaluation row = t.averages().back();
  REQUIRE(row.step == 20);
  must(t.directory->store().begin_attempt(row.id, "cpu"));
  must(t.directory->store().fail_attempt(row.id, {"loading", "corruption", "no"}, "", true));
  t.directory->release(row);
  for (const std::int64_t step : {15, 20}) t.remove(step);
  t.turns(3);
  for (const std::int64_t step : {12, 17}) t.save(step);
  t.turns(3);

  must(t.directory->store().ask_again(row.id, "retry"));
  t.save(30);
  t.turns(3);

  const auto now = must(t.directory->store().read().evaluation(row.id));
  INFO(now.reason);
  CHECK(now.state == EvaluationState::kSkipped);
  CHECK(now.reason.find("left behind") != std::string::npos);
}

TEST_CASE("what is recorded late, newest first, was not left behind") {
  Averaging t(2);
  t.save(5);
  t.turns(3);
  t.refuse("INSERT ON checkpoint");
  for (const std::int64_t step : {10, 15, 20}) {
    t.save(step);
    t.wait_until_held(std::to_string(step) + "-1-regular", static_cast<char>('a' + step));
    if (step > 10) t.remove(step - 5);
  }
  for (int i = 0; i < 5; ++i) (void)t.turn();  // until they are seen to be gone
  t.accept();

  t.turns(20);

  const auto rows = must(t.directory->store().read().evaluations({.step = 20, .kind = "average"}));
  REQUIRE(rows.size() == 1);
  INFO(rows.front().reason);
  REQUIRE(rows.front().state == EvaluationState::kLeased);
  CHECK(t.members(rows.front()) == std::vector<std::string>{"15", "20"});
}
