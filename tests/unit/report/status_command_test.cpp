#include "agent/cli/status_command.h"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/unit/state/scenario.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::cli;
using nlohmann::json;
using test::must;

TEST_CASE("status names the running agent by the lock that it holds") {
  test::Scenario s;
  s.bring(s.plan(500).id, state::EvaluationState::kEvaluating);
  StatusOptions options;
  options.database.db = s.db();
  options.json = true;
  std::ostringstream out;
  std::ostringstream err;
  REQUIRE(run_status(options, s.files, s.clock, out, err) == 0);
  json status = json::parse(out.str());
  CHECK(status["agent"]["pid"] == ::getpid());
  CHECK(status["evaluations"][0]["state"] == "evaluating");
  CHECK(status["lag_steps"] == 500);

  s.store.reset();
  out.str("");
  REQUIRE(run_status(options, s.files, s.clock, out, err) == 0);
  CHECK(json::parse(out.str())["agent"].is_null());
}

TEST_CASE("status uses the heartbeat of the same process only, and survives a broken one") {
  test::Scenario s;
  s.plan(500);
  StatusOptions options;
  options.database.db = s.db();
  options.json = true;
  const std::string heartbeat = s.db() + ".status.json";
  const auto agent = [&](const std::string& text) {
    must(write_file_atomically(s.files, heartbeat, text));
    std::ostringstream out;
    std::ostringstream err;
    REQUIRE(run_status(options, s.files, s.clock, out, err) == 0);
    return json::parse(out.str())["agent"];
  };
  const std::string pid = std::to_string(::getpid());
  CHECK(agent(R"({"agent":{"pid":)" + pid + R"(,"version":"9.9","uptime_s":12.5}})")["version"] ==
        "9.9");
  CHECK(agent(R"({"agent":{"pid":1,"version":"9.9"}})")["version"] == "");
  CHECK(agent(R"({"agent":{"pid":)" + pid + R"(,"version":[],"uptime_s":"x"}})")["uptime_s"] == 0);
  CHECK(agent("{\"agent\":")["pid"] == ::getpid());
}

TEST_CASE("status for people is a table with reasons") {
  test::Scenario s;
  must(s.store->transition(s.plan(500).id, state::EvaluationState::kLost, "the files\nwent"));
  s.store.reset();
  StatusOptions options;
  options.database.db = s.db();
  std::ostringstream out;
  std::ostringstream err;
  REQUIRE(run_status(options, s.files, s.clock, out, err) == 0);
  CHECK(out.str().find("agent: not running") == 0);
  CHECK(out.str().find("| 500|regular|lost |      0%|docvqa_val|the files went|") !=
        std::string::npos);
}

TEST_CASE("status for people tells the work of now, then the queue, failures and what ended") {
  test::Scenario s;
  const auto running = s.plan(500).id;
  s.bring(running, state::EvaluationState::kEvaluating);
  must(s.store->fail_attempt(s.plan(400).id, {"loading", "corruption", "is torn"},
                             "2030-01-01T00:00:00.000000Z", false));
  for (std::int64_t step = 1; step <= 25; ++step) {
    must(s.store->transition(s.plan(step).id, state::EvaluationState::kLost, "gone"));
  }
  must(write_file_atomically(
      s.files, s.db() + ".status.json",
      R"({"agent":{"pid":)" + std::to_string(::getpid()) + R"(,"version":"1","uptime_s":3700,
          "current":{"evaluation_id":1,"step":500,"checkpoint_type":"regular","stage":"evaluating",
          "task":"docvqa_val","done":50,"total":100,"per_second":2.0,"seconds_left":25.0}}})"));
  StatusOptions options;
  options.database.db = s.db();
  options.bars = true;
  std::ostringstream out;
  std::ostringstream err;
  REQUIRE(run_status(options, s.files, s.clock, out, err) == 0);
  const std::string text = out.str();
  CHECK(text.find(", up 1 h 1 min (database ") != std::string::npos);
  CHECK(text.find("now: step 500 regular: evaluating docvqa_val [##########----------] 50 % "
                  "50/100, 2.00/s, 25 s left\n") != std::string::npos);
  CHECK(text.find("lag: 500 steps") != std::string::npos);
  CHECK(text.find("\nqueue: 1\n") != std::string::npos);
  CHECK(text.find("\nfailed: 1\n") != std::string::npos);
  CHECK(text.find("is torn; next try at 2030-01-01") != std::string::npos);
  CHECK(text.find("\nended: 25, the last 20 of them (--json lists all)\n") != std::string::npos);
  CHECK(text.find("|   5|regular|lost") == std::string::npos);
  CHECK(text.find("|   6|regular|lost") != std::string::npos);

  options.json = true;
  out.str("");
  REQUIRE(run_status(options, s.files, s.clock, out, err) == 0);
  const json current = json::parse(out.str())["agent"]["current"];
  CHECK(current["seconds_left"] == 25.0);
  CHECK(current["task"] == "docvqa_val");
}

TEST_CASE("the database is the named one, that of the output directory, or the only one") {
  test::FakeClock clock;
  test::MemoryFileSystem files(clock);
  files.put_directory("/out/run");
  const state::Environment environment = [](const char* name) {
    return std::string(name) == "STATE_DIRECTORY" ? std::string("/state") : std::string();
  };
  const std::string own = must(state::default_database_path(files, "/out/run", environment));

  DatabaseChoice choice;
  CHECK(choose_database(files, choice, environment).error().code == ErrorCode::kNotFound);
  files.put_file(own, "");
  CHECK(must(choose_database(files, choice, environment)) == own);
  files.put_file("/state/other.db", "");
  const auto several = choose_database(files, choice, environment);
  CHECK(several.error().code == ErrorCode::kInvalidArgument);
  CHECK(several.error().message.find("--db /state/other.db") != std::string::npos);
  choice.output_dir = "/out/run";
  CHECK(must(choose_database(files, choice, environment)) == own);
  choice.config_store = "/state/other.db";  // --output-dir says more than the file
  CHECK(must(choose_database(files, choice, environment)) == own);
  choice.output_dir = "";
  CHECK(must(choose_database(files, choice, environment)) == "/state/other.db");
  choice.config_store = "";
  choice.config_outputs = {"/out/run"};
  CHECK(must(choose_database(files, choice, environment)) == own);
  choice.config_outputs = {"/out/run", "/out/next"};
  const auto either = choose_database(files, choice, environment);
  REQUIRE_FALSE(either.has_value());
  CHECK(either.error().code == ErrorCode::kInvalidArgument);
  CHECK(either.error().message.find("--output-dir /out/run\n  --output-dir /out/next") !=
        std::string::npos);
  choice.output_dir = "/out/run";
  CHECK(must(choose_database(files, choice, environment)) == own);
  choice.output_dir = "";
  choice.db = "/state/none.db";
  CHECK(choose_database(files, choice, environment).error().code == ErrorCode::kNotFound);
}
