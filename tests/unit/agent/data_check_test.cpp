#include "agent/supervise/data_check.h"

#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "tests/unit/support/fake_clock.h"

using namespace evalcar;
using namespace evalcar::supervise;
using namespace std::chrono_literals;

namespace {

std::optional<Result<DataReport>> outcome_of(const std::string& script, const Clock& clock) {
  auto check = DataCheck::start({"/bin/sh", "-c", script}, clock, 10s);
  REQUIRE(check.has_value());
  for (int i = 0; i < 2000; ++i, std::this_thread::sleep_for(5ms)) {
    if (auto outcome = check->poll(); outcome.has_value()) return outcome;
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE("a report is found among warnings, whatever the program's exit code says") {
  const test::FakeClock clock;
  const auto outcome = outcome_of(
      "echo 'warning: no GPU' >&2; printf '%s\\n' '{\"tasks\":[{\"task\":\"a\",\"error\":"
      "\"gone\\nfetch it\"},{\"task\":\"b\",\"error\":\"\",\"circumstances\":\"v1\"}]}'; exit 1",
      clock);

  REQUIRE(outcome.has_value());
  REQUIRE(outcome->has_value());
  CHECK(**outcome == DataReport{{"a", {"gone\nfetch it", ""}}, {"b", {"", "v1"}}});
}

TEST_CASE("what is no report says what was seen") {
  for (const std::string output : {"", "{}", "{\"tasks\":[", "{\"tasks\":{}}",
                                   "{\"tasks\":[{\"error\":\"no name\"}]}", "Segfault"}) {
    INFO(output);
    const auto report = parse_data_report(output);
    REQUIRE_FALSE(report.has_value());
    CHECK(report.error().code == ErrorCode::kCorruption);
  }
}

TEST_CASE("a program that cannot tell is no report, and says how it ended") {
  const test::FakeClock clock;
  const auto outcome = outcome_of("echo no such library; exit 127", clock);

  REQUIRE(outcome.has_value());
  REQUIRE_FALSE(outcome->has_value());
  CHECK(outcome->error().message.find("exit code 127") != std::string::npos);
  CHECK(outcome->error().message.find("no such library") != std::string::npos);
}

TEST_CASE("a look at data on storage that hangs is given up") {
  test::FakeClock clock;
  auto check = DataCheck::start({"/bin/sh", "-c", "sleep 600"}, clock, 10s);
  REQUIRE(check.has_value());
  clock.advance(9s);
  CHECK_FALSE(check->poll().has_value());

  clock.advance(1s);
  const auto outcome = check->poll();

  REQUIRE(outcome.has_value());
  CHECK_FALSE(outcome->has_value());
}
