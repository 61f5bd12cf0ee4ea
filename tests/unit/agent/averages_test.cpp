// The third series while checkpoints are still being looked at, come and go, or are asked for
// again.
#include <algorithm>
#include <catch2/generators/catch_generators.hpp>
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

TEST_CASE("an average is of checkpoints that follow each other, however long the look takes") {
  Averaging t(2);
  for (const std::int64_t step : {5, 10}) t.save(step);
  t.turns(3);
  t.publish_all();
  t.directory.reset();
  for (std::int64_t step = 15; step <= 60; step += 5) t.save(step);
  t.start();
  t.slow_down();

  t.turns(60);

  REQUIRE(t.averages().size() == 11);
  for (const state::Evaluation& row : t.averages()) {
    INFO(row.step << ": " << row.reason);
    REQUIRE(row.state == EvaluationState::kLeased);
    CHECK(t.members(row) == std::vector{std::to_string(row.step - 5), std::to_string(row.step)});
  }
}

TEST_CASE("averages that are newly wanted of a long run lose none while it is looked at") {
  Averaging t(0);
  for (std::int64_t step = 5; step <= 60; step += 5) t.save(step);
  t.turns(3);
  t.publish_all();
  t.directory.reset();
  t.settings.evaluate.average_last = 3;
  t.start();
  t.slow_down();

  t.turns(60);

  CHECK(t.averages().size() == 10);
  for (const state::Evaluation& row : t.averages()) {
    INFO(row.step << ": " << row.reason);
    CHECK(row.state == EvaluationState::kLeased);
  }
}

TEST_CASE("the last checkpoint's average, left out before, is measured whatever retention took") {
  Averaging t(2);
  t.settings.evaluate.eval_strategy = config::EvalStrategy::kSteps;
  t.settings.evaluate.eval_steps = 10;
  t.start();
  for (const std::int64_t step : {10, 15, 25}) {
    t.save(step);
    t.turns(3);
    if (step > 10) t.remove(step == 15 ? 10 : 15);
    t.turns(3);
  }
  t.publish_all();
  REQUIRE(t.averages().empty());

  CHECK(must(t.directory->take_up_last()));
  t.turns(3);

  REQUIRE(t.averages().size() == 1);
  CHECK(t.averages().front().state == EvaluationState::kLeased);
  CHECK(t.members(t.averages().front()) == std::vector<std::string>{"15", "25"});
  CHECK_FALSE(t.files.exists("/out/_evalcar/leases/10-1-regular"));
}

TEST_CASE("an average that is asked for again is formed again, or lost with its files") {
  const bool gone = GENERATE(false, true);
  Averaging t(2);
  for (const std::int64_t step : {5, 10}) t.save(step);
  t.turns(3);
  const state::Evaluation row = t.averages().front();
  must(t.directory->store().begin_attempt(row.id, "cpu"));
  must(t.directory->store().fail_attempt(row.id, {"loading", "corruption", "no"}, "", true));
  t.directory->release(row);
  t.publish_all();
  if (gone) {
    t.save(15);
    t.turns(3);
    t.publish_all();
    t.save(20);
    t.turns(3);
    for (const std::int64_t step : {5, 10}) t.remove(step);
    t.turns(3);
  }

  must(t.directory->store().ask_again(row.id, "retry"));
  t.turns(1);  // nothing is due: nobody said that it was asked for
  CHECK_FALSE(must(t.directory->lease_of(must(t.directory->store().read().evaluation(row.id))))
                  .has_value());
  t.save(25);  // what comes is a reason to look at averages, as the request is
  t.turns(3);

  const state::Evaluation again = must(t.directory->store().read().evaluation(row.id));
  INFO(again.reason);
  CHECK(again.state == (gone ? EvaluationState::kLost : EvaluationState::kLeased));
}

TEST_CASE("a power cut behind the row leaves an average's lease that can be read") {
  Averaging t(2);
  for (const std::int64_t step : {5, 10}) t.save(step);
  t.files.sync_all();
  t.turns(3);
  REQUIRE(t.averages().front().state == EvaluationState::kLeased);

  t.directory.reset();
  t.files.power_cut(GENERATE(test::UnsyncedNames::kKept, test::UnsyncedNames::kDropped));
  t.start();
  t.turns(3);

  CHECK(must(t.directory->lease_of(t.averages().front())).has_value());
}

TEST_CASE("averages that cannot be formed neither keep an agent busy nor from its end") {
  Averaging t(2);
  for (const std::int64_t step : {5, 10}) t.save(step);
  t.turns(3);
  const auto leased =
      must(t.directory->store().read().evaluations({.states = {EvaluationState::kLeased}}));
  for (const state::Evaluation& row : leased) t.publish(row, 0.5);
  t.turns(3);
  t.files.on_call([&t](const test::Call& call) {
    if (call.operation == "list" && call.path == "/out") t.files.fail_operation("list", EACCES);
  });
  t.start();

  for (int i = 0; i < 10; ++i) (void)t.turn(seconds(2));
  (void)t.turn(seconds(0));
  t.directory->write_status({}, run::StatusTurn::kAtOnce);

  CHECK(t.directory->until_due() > seconds(0));
  CHECK(must(t.directory->quiet()));
}

TEST_CASE(
    "the last average, cut off before its lease was written down, is formed at the next start") {
  Averaging t(2);
  t.settings.evaluate.eval_strategy = config::EvalStrategy::kSteps;
  t.settings.evaluate.eval_steps = 10;
  t.start();
  for (const std::int64_t step : {10, 15}) {
    t.save(step);
    t.turns(3);
  }
  t.publish_all();
  CHECK(must(t.directory->take_up_last()));
  t.refuse("UPDATE OF lease_path ON evaluation");
  for (int i = 0; i < 3; ++i) (void)t.turn();
  REQUIRE(t.averages().front().state == EvaluationState::kComplete);
  t.start();
  t.accept();

  t.turns(6);

  CHECK(t.averages().front().state == EvaluationState::kLeased);
  CHECK(t.members(t.averages().front()) == std::vector<std::string>{"10", "15"});
}

TEST_CASE("an average waits for the weights of a folder that is made anew under its number") {
  Averaging t(2);
  for (const std::int64_t step : {5, 10}) t.save(step);
  t.turns(3);
  t.publish_all();
  t.remove(10);
  t.files.put_file("/out/checkpoint-10/config.json", "{}");

  t.turns(5);
  t.save(10);
  t.turns(40);

  const auto rows = t.averages();
  REQUIRE(rows.size() == 2);
  CHECK(rows.front().state == EvaluationState::kSuperseded);
  CHECK(rows.back().generation == 2);
  INFO(rows.back().reason);
  CHECK(rows.back().state == EvaluationState::kLeased);
}

TEST_CASE("a lease that was half made when its process ended is no member of an average") {
  Averaging t(2);
  t.settings.evaluate.weights = {"ema"};  // the regular ones are kept for averages alone
  t.start();
  t.save(5);
  t.turns(3);
  REQUIRE(t.held_pattern("5-1-regular") != 0);
  t.directory.reset();
  must(t.files.remove_file("/out/_evalcar/leases/5-1-regular/model.safetensors"));
  t.start();
  t.turns(3);
  t.save(10);
  t.turns(3);

  REQUIRE(t.averages().size() == 1);
  INFO(t.averages().front().reason);
  CHECK(t.averages().front().state == EvaluationState::kLeased);
}

TEST_CASE("an average waits for a checkpoint between, whether anybody measures that one or not") {
  const bool measured = GENERATE(false, true);
  Averaging t(2);
  if (!measured) t.settings.evaluate.weights = {"ema"};
  t.start();
  t.save(5);
  t.turns(3);
  t.files.put_file("/out/checkpoint-10/config.json", "{}");
  t.turns(1);
  t.save(15);
  t.turns(3);
  CHECK(t.averages().empty());
  t.publish_all();
  t.turns(3);
  t.remove(5);  // its files are needed still
  t.turns(3);

  t.save(10);
  t.turns(40);

  REQUIRE(t.averages().size() == 2);
  for (const state::Evaluation& row : t.averages()) {
    INFO(row.step << ": " << row.reason);
    REQUIRE(row.state == EvaluationState::kLeased);
    CHECK(t.members(row) == std::vector{std::to_string(row.step - 5), std::to_string(row.step)});
  }
}

TEST_CASE("an average whose members cannot be linked for a while is formed when they can") {
  const bool for_ever = GENERATE(false, true);
  Averaging t(2);
  t.save(5);
  t.turns(3);
  int failures = for_ever ? 1000 : 3;
  t.files.on_call([&](const test::Call& call) {
    const bool of_average =
        call.operation == "make_directory" && call.path.find("-average") != std::string::npos;
    if (of_average && failures-- > 0) t.files.fail_operation("make_directory", ENOSPC);
  });
  t.save(10);
  t.turns(3);
  REQUIRE(t.averages().size() == 1);
  CHECK(t.averages().front().state == EvaluationState::kFound);
  CHECK_FALSE(must(t.directory->quiet()));
  t.publish_all();
  t.save(15);  // their turn in the window is over
  t.turns(3);
  t.publish_all();
  for (const std::int64_t step : {5, 10}) t.remove(step);

  t.turns(200);

  const state::Evaluation row = t.averages().front();
  INFO(row.reason);
  CHECK(row.state == (for_ever ? EvaluationState::kLost : EvaluationState::kLeased));
  if (for_ever) CHECK(row.reason.find("No space left") != std::string::npos);
  must(t.turn(seconds(0)));
  t.directory->write_status({}, run::StatusTurn::kAtOnce);
  CHECK(t.directory->until_due() > seconds(0));
  CHECK_FALSE(t.files.exists("/out/_evalcar/leases/5-1-regular"));
}

TEST_CASE("an average that was given up is leased when a person asks for it again") {
  Averaging t(2);
  bool fails = true;
  t.files.on_call([&](const test::Call& call) {
    const bool of_average =
        call.operation == "make_directory" && call.path.find("-average") != std::string::npos;
    if (of_average && fails) t.files.fail_operation("make_directory", ENOSPC);
  });
  for (const std::int64_t step : {5, 10}) t.save(step);
  t.turns(200);
  const state::Evaluation lost = t.averages().front();
  REQUIRE(lost.state == EvaluationState::kLost);
  fails = false;

  must(t.directory->store().ask_again(lost.id, "retry"));
  t.save(15);
  t.turns(5);

  CHECK(t.averages().front().state == EvaluationState::kLeased);
}

TEST_CASE("an average whose member was gone is formed when that comes back whole") {
  Averaging t(2);
  for (const std::int64_t step : {5, 10}) t.save(step);
  t.turns(3);
  t.publish_all();
  must(t.files.rename("/out/checkpoint-10", "/away"));
  must(remove_tree(t.files, "/out/_evalcar/leases/10-1-regular"));
  t.turns(5);
  t.save(15);
  t.turns(40);
  REQUIRE(t.averages().back().step == 15);
  REQUIRE(t.averages().back().state == EvaluationState::kLost);

  must(t.files.rename("/away", "/out/checkpoint-10"));
  t.turns(60);

  const auto rows = t.averages();
  INFO(rows.back().step << ": " << rows.back().reason);
  REQUIRE(rows.back().step == 15);
  CHECK(rows.back().state == EvaluationState::kLeased);
}

TEST_CASE("a lease that cannot be removed keeps nothing from being measured") {
  Averaging t(2);
  t.files.put_file("/out/_evalcar/leases/3-1-regular/model.safetensors", "old");
  t.files.on_call([&](const test::Call& call) {
    const bool of_it = call.path.find("3-1-regular") != std::string::npos;
    if (of_it && call.operation == "remove_file") t.files.fail_operation("remove_file", EACCES);
  });
  t.save(5);
  t.turns(5);

  CHECK(must(t.directory->waiting()).size() == 1);
}

TEST_CASE("averages that a change of configuration left out come back with it") {
  Averaging t(2);
  for (const std::int64_t step : {5, 10}) t.save(step);
  t.turns(3);
  t.settings.evaluate.average_last = 0;
  t.start();
  t.turns(5);
  REQUIRE(t.averages().front().state == EvaluationState::kSkipped);

  t.settings.evaluate.average_last = 2;
  t.start();
  t.turns(5);

  INFO(t.averages().front().reason);
  CHECK(t.averages().front().state == EvaluationState::kLeased);
}

TEST_CASE("the last checkpoint that could not be taken up is asked for again") {
  const auto last = GENERATE(0U, 2U);
  Averaging t(last);
  t.settings.evaluate.eval_strategy = config::EvalStrategy::kSteps;
  t.settings.evaluate.eval_steps = 10;
  t.start();
  for (const std::int64_t step : {10, 15}) t.save(step);
  t.turns(3);
  t.publish_all();
  t.refuse("UPDATE OF state ON evaluation");
  CHECK_FALSE(t.directory->take_up_last().has_value());
  must(t.turn(seconds(0)));
  t.directory->write_status({}, run::StatusTurn::kAtOnce);
  CHECK(t.directory->until_due() > seconds(0));
  t.accept();

  CHECK(must(t.directory->take_up_last()));
  t.turns(2);
  const auto rows = must(t.directory->store().read().evaluations({.step = 15, .kind = "regular"}));
  REQUIRE(rows.size() == 1);
  CHECK(rows.front().state == EvaluationState::kLeased);
}

TEST_CASE("a torn checkpoint before a long run does not have all of it kept at a start") {
  Averaging t(3);
  t.files.put_file("/out/checkpoint-5/config.json", "{}");
  for (std::int64_t step = 10; step <= 200; step += 5) t.save(step);
  t.turns(60);
  for (int i = 0; i < 3; ++i) {
    t.publish_all();
    t.turns(5);
  }
  for (const auto& row : t.averages()) {
    if (row.state == EvaluationState::kLeased) t.publish(row, 0.5);
  }
  t.turns(60);
  t.start();

  t.turns(2);

  CHECK(t.directory->stage().names().size() <= 2 + 5 + 2);
}

TEST_CASE("an average that comes back and cannot be leased keeps no agent from its end") {
  Averaging t(2);
  for (const std::int64_t step : {5, 10}) t.save(step);
  t.turns(3);
  t.settings.evaluate.average_last = 0;
  t.start();
  t.turns(5);
  t.publish_all();
  t.files.on_call([&](const test::Call& call) {
    const bool of_average =
        call.operation == "make_directory" && call.path.find("-average") != std::string::npos;
    if (of_average) t.files.fail_operation("make_directory", ENOSPC);
  });
  t.settings.evaluate.average_last = 2;
  t.start();

  t.turns(3);
  CHECK_FALSE(must(t.directory->quiet()));
  t.turns(200);

  CHECK(must(t.directory->quiet()));
  CHECK(t.averages().front().state == EvaluationState::kSkipped);
}

TEST_CASE("the tries of one average are not those of another") {
  Averaging t(2);
  t.save(5);
  t.turns(3);
  bool fails = true;
  t.files.on_call([&](const test::Call& call) {
    const bool of_average =
        call.operation == "make_directory" && call.path.find("-average") != std::string::npos;
    if (of_average && fails) t.files.fail_operation("make_directory", ENOSPC);
  });
  t.save(10);
  t.turns(60);
  t.save(15);
  t.turns(40);
  fails = false;
  t.turns(80);

  REQUIRE(t.averages().size() == 2);
  for (const state::Evaluation& row : t.averages()) {
    INFO(row.step << ": " << row.reason);
    CHECK(row.state == EvaluationState::kLeased);
  }
}

TEST_CASE("the newest checkpoint may be saved again when the one before is gone") {
  const bool was_measured = GENERATE(false, true);
  Averaging t(2);
  for (const std::int64_t step : {5, 10}) {
    t.save(step);
    t.turns(3);
  }
  if (was_measured) {
    t.publish_all();
    t.publish(t.averages().front(), 0.5);
  }
  t.remove(5);  // lmms-engine's rotation, between its two saves of the last step
  t.turns(3);

  must(t.files.remove_file("/out/checkpoint-10/model.safetensors"));
  t.Trainer::save(10, 'n');
  t.turns(40);

  const auto rows = t.averages();
  REQUIRE(rows.size() == 2);
  INFO(rows.back().reason);
  CHECK(rows.back().generation == 2);
  REQUIRE(rows.back().state == EvaluationState::kLeased);
  CHECK(t.members(rows.back()) == std::vector<std::string>{"5", "10"});
}

TEST_CASE("an average is never of another configuration's number of checkpoints") {
  const bool was_taken = GENERATE(false, true);
  Averaging t(2);
  for (const std::int64_t step : {5, 10, 15}) t.save(step);
  t.turns(3);
  t.settings.evaluate.average_last = 3;
  // The process ends while it takes the lease of the same name, or just behind it.
  int folders = 0;
  t.files.on_call([&](const test::Call& call) {
    const bool of_average = call.path.find("15-1-average") != std::string::npos;
    if (!was_taken && of_average && call.operation == "create") {
      t.files.fail_operation("create", EIO);
    }
    if (of_average && call.operation == "make_directory") ++folders;
  });
  t.refuse("UPDATE OF state ON evaluation");
  t.start();
  for (int i = 0; i < 3; ++i) (void)t.turn();
  REQUIRE(folders > 0);
  t.files.on_call({});
  t.settings.evaluate.average_last = 2;
  t.start();
  t.accept();
  t.turns(3);

  const auto rows = must(t.directory->store().read().evaluations({.step = 15, .kind = "average"}));
  REQUIRE(rows.front().settings.average_last == 2);
  for (int i = 0; i < 3; ++i) {
    const auto row = must(t.directory->store().read().evaluation(rows.front().id));
    if (must(t.directory->lease_of(row)).has_value()) break;
    t.turns(2);
  }
  const auto row = must(t.directory->store().read().evaluation(rows.front().id));
  INFO(row.reason);
  REQUIRE(must(t.directory->lease_of(row)).has_value());
  CHECK(t.members(row) == std::vector<std::string>{"10", "15"});
}

TEST_CASE("an average whose lease was removed is formed again of what is there") {
  const bool restarted = GENERATE(false, true);
  Averaging t(2);
  for (const std::int64_t step : {5, 10}) t.save(step);
  t.turns(3);
  const state::Evaluation before = t.averages().front();
  REQUIRE(must(t.directory->lease_of(before)).has_value());
  must(remove_tree(t.files, "/out/_evalcar/leases/10-1-average"));
  if (restarted) t.start();
  t.turns(40);

  for (int i = 0; i < 3; ++i) {
    if (must(t.directory->lease_of(t.averages().front())).has_value()) break;
    t.turns(3);
  }

  const state::Evaluation row = t.averages().front();
  INFO(row.reason);
  REQUIRE(must(t.directory->lease_of(row)).has_value());
  CHECK(t.members(row) == std::vector<std::string>{"5", "10"});
}

TEST_CASE("a copy for averages that fails is not begun again with everything that comes") {
  Averaging t(20);
  t.settings.evaluate.weights = {"ema"};  // the regular ones are kept for averages alone
  t.start();
  int copies = 0;
  t.files.on_call([&](const test::Call& call) {
    if (call.operation == "hard_link") t.files.fail_operation("hard_link", EPERM);
    const bool of_first = call.path.find("leases/5-1-regular/model") != std::string::npos;
    if (of_first && call.operation == "create") {
      ++copies;
      t.files.fail_operation("create", EDQUOT);
    }
  });
  for (std::int64_t step = 5; step <= 50; step += 5) {
    t.save(step);
    t.turns(1);
  }
  CHECK(copies == 1);

  t.turns(40);
  CHECK(copies > 1);
}

TEST_CASE("copies for averages are not taken where the budget has no room for them") {
  Averaging t(3);
  t.settings.evaluate.weights = {"ema"};  // the regular ones are kept for averages alone
  const std::uint64_t one = safetensors('a').size() + 60;  // and its small files
  t.settings.limits.lease_budget = 2 * one + one / 2;
  t.start();
  t.files.on_call([&](const test::Call& call) {
    if (call.operation == "hard_link") t.files.fail_operation("hard_link", EPERM);
  });

  for (const std::int64_t step : {5, 10, 15}) {
    t.save(step);
    t.turns(5);
  }

  CHECK(t.held_pattern("5-1-regular") != 0);
  CHECK(t.held_pattern("10-1-regular") != 0);
  CHECK(t.held_pattern("15-1-regular") == 0);
}

TEST_CASE("a checkpoint that could not be kept for averages to come is kept later") {
  Averaging t(2);
  t.settings.evaluate.weights = {"ema"};  // the regular ones are kept for averages alone
  t.start();
  bool fails = true;
  t.files.on_call([&](const test::Call& call) {
    const bool of_window = call.path.find("5-1-regular") != std::string::npos;
    if (of_window && call.operation == "make_directory" && fails) {
      t.files.fail_operation("make_directory", ENOSPC);
    }
  });
  t.save(5);
  t.turns(80);  // what else there is to see of it is over
  REQUIRE(t.held_pattern("5-1-regular") == 0);
  must(t.turn(seconds(0)));
  t.directory->write_status({}, run::StatusTurn::kAtOnce);
  CHECK(t.directory->until_due() > seconds(0));
  fails = false;

  t.turns(40);

  CHECK(t.held_pattern("5-1-regular") != 0);
}

TEST_CASE("a checkpoint that can never be kept for averages keeps no agent from its end") {
  Averaging t(2);
  t.settings.evaluate.weights = {"ema"};  // the regular ones are kept for averages alone
  t.start();
  int tries = 0;
  t.files.on_call([&](const test::Call& call) {
    const bool of_window = call.path.find("-1-regular") != std::string::npos;
    if (of_window && call.operation == "make_directory") {
      ++tries;
      t.files.fail_operation("make_directory", ENOSPC);
    }
  });
  t.save(5);
  t.turns(60);
  CHECK(must(t.directory->quiet()));

  t.turns(600);
  const int tried = tries;
  t.turns(300);
  CHECK(tried > 1);
  CHECK(tries - tried < tried / 2);  // they come further and further apart
}

TEST_CASE("with eval_strategy = no an average that is asked for is formed, and none is kept for") {
  Averaging t(2);
  for (const std::int64_t step : {5, 10}) t.save(step);
  t.turns(3);
  const state::Evaluation row = t.averages().front();
  must(t.directory->store().begin_attempt(row.id, "cpu"));
  must(t.directory->store().fail_attempt(row.id, {"loading", "corruption", "no"}, "", true));
  t.directory->release(row);
  t.publish_all();
  t.settings.evaluate.eval_strategy = config::EvalStrategy::kNo;
  t.start();
  t.turns(3);
  CHECK(t.directory->stage().names().empty());

  must(t.directory->store().ask_again(row.id, "retry"));
  t.save(15);  // what comes is a reason to look at averages, as the request is
  t.turns(3);

  CHECK(t.averages().front().state == EvaluationState::kLeased);
  CHECK(t.directory->stage().names() == std::vector<std::string>{"10-1-average"});
}

TEST_CASE("an average that was given up is formed when another one shows that there is room") {
  Averaging t(2);
  bool fails = true;
  t.files.on_call([&](const test::Call& call) {
    const bool of_average =
        call.operation == "make_directory" && call.path.find("-average") != std::string::npos;
    if (of_average && fails) t.files.fail_operation("make_directory", ENOSPC);
  });
  for (const std::int64_t step : {5, 10}) t.save(step);
  t.turns(200);
  REQUIRE(t.averages().front().state == EvaluationState::kLost);
  fails = false;

  t.save(15);
  t.turns(5);

  for (const state::Evaluation& row : t.averages()) {
    INFO(row.step << ": " << row.reason);
    CHECK(row.state == EvaluationState::kLeased);
  }
}
