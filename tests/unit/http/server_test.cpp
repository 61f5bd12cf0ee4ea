#include "agent/http/server.h"

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::http;
using namespace evalcar::test;

namespace {

std::string why_not(const config::ServerSettings& settings) {
  const FakeClock clock;
  const MemoryFileSystem files(clock);
  const auto plan = plan_server(files, settings);
  return plan.has_value() ? "" : plan.error().message;
}

}  // namespace

TEST_CASE("nothing is served unless a place is named") {
  const FakeClock clock;
  const MemoryFileSystem files(clock);

  CHECK_FALSE(plan_server(files, {}).value().serves());
  CHECK(plan_server(files, {.listen = "127.0.0.1:0"}).value().serves());
  CHECK(plan_server(files, {.unix_socket = "/run/x.sock"}).value().serves());
}

TEST_CASE("an address that others reach is served with a token only") {
  CHECK(why_not({.listen = "0.0.0.0:8000"}).find("server.token_file") != std::string::npos);
  CHECK(why_not({.listen = "[::]:8000"}).find("server.token_file") != std::string::npos);
  CHECK(why_not({.listen = "192.168.8.249:8000", .allow_from = {"192.168.0.0/16"}})
            .find("server.token_file") != std::string::npos);
  CHECK(why_not({.listen = "[::1]:8000"}).empty());
}

TEST_CASE("a setting that cannot be meant is refused by its name") {
  CHECK(why_not({.listen = "8000"}).starts_with("server.listen: "));
  CHECK(why_not({.allow_from = {"10.0.0.1/8"}}).starts_with("server.allow_from: "));
  CHECK(why_not({.allowed_hosts = {"a b"}}).starts_with("server.allowed_hosts: "));
  CHECK(why_not({.token_file = "/nowhere"}).starts_with("server.token_file: "));
}

TEST_CASE("addresses of both kinds may stand among the allowed hosts") {
  const FakeClock clock;
  const MemoryFileSystem files(clock);
  const auto plan =
      plan_server(files, {.allowed_hosts = {"10.0.0.1", "fd00::1", "[fd00::2]", "Gpu7"}});

  REQUIRE(plan.has_value());
  CHECK(plan->rules.hosts == std::vector<std::string>{"10.0.0.1", "fd00::1", "fd00::2", "gpu7"});
}
