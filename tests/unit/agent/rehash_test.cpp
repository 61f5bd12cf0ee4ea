#include "agent/run/rehash.h"

#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <iterator>
#include <thread>

#include "tests/unit/agent/temporary_folder.h"
#include "tests/unit/support/fake_clock.h"

using namespace evalcar;
using namespace std::chrono_literals;
using evalcar::run::Rehash;

namespace {

template <typename Condition>
bool soon(Condition condition) {
  for (int i = 0; i < 2000; ++i, std::this_thread::sleep_for(5ms)) {
    if (condition()) return true;
  }
  return false;
}

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// It may be a zombie for a while: nobody has to reap an orphan here.
bool lives(const std::string& pid) {
  const std::string stat = text_of("/proc/" + pid + "/stat");
  return !stat.empty() && stat.find(") Z ") == std::string::npos;
}

}  // namespace

TEST_CASE("hashing again that hangs is killed with its group at the limit") {
  const testing::TemporaryFolder folder;
  test::FakeClock clock;
  const std::string grandchild = folder / "pid";
  auto rehash = Rehash::start({"/bin/sh", "-c", "sleep 600 & echo $! > " + grandchild + "; wait"},
                              folder.path(), "regular", clock, 10s);
  REQUIRE(rehash.has_value());
  REQUIRE(soon([&] { return text_of(grandchild).ends_with("\n"); }));
  std::string pid = text_of(grandchild);
  pid.pop_back();
  REQUIRE(lives(pid));

  clock.advance(9s);
  CHECK_FALSE(rehash->poll().has_value());
  clock.advance(1s);
  const auto hash = rehash->poll();

  REQUIRE(hash.has_value());
  REQUIRE_FALSE(hash->has_value());
  CHECK(hash->error().retryable);
  CHECK(hash->error().message.find("10 s (limits.stage_timeouts, loading)") != std::string::npos);
  CHECK(soon([&] { return !lives(pid); }));
}

TEST_CASE("hashing again gives the hash that the child prints") {
  const test::FakeClock clock;
  const std::string sha(64, 'a');
  auto rehash = Rehash::start({"/bin/sh", "-c", "echo '{\"weights_sha256\": \"" + sha + "\"}'"},
                              "/", "regular", clock, 10s);
  REQUIRE(rehash.has_value());
  std::optional<Result<std::string>> hash;

  REQUIRE(soon([&] { return (hash = rehash->poll()).has_value(); }));
  REQUIRE(hash->has_value());
  CHECK(**hash == sha);
}
