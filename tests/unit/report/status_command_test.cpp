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
