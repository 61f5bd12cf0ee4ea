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

/// What hashing with this shell script in the place of `evalcar` gives.
Result<std::string> rehash(const std::string& script, const run::LeasedWeights& weights = {}) {
  const test::FakeClock clock;
  auto child = Rehash::start({"/bin/sh", "-c", script, "evalcar"}, weights, clock, 10s);
  REQUIRE(child.has_value());
  std::optional<Result<std::string>> hash;
  REQUIRE(soon([&] { return (hash = child->poll()).has_value(); }));
  return *hash;
}

}  // namespace

TEST_CASE("hashing again that hangs is killed with its group at the limit") {
  const testing::TemporaryFolder folder;
  test::FakeClock clock;
  const std::string grandchild = folder / "pid";
  auto rehash = Rehash::start({"/bin/sh", "-c", "sleep 600 & echo $! > " + grandchild + "; wait"},
                              {folder.path(), "regular", ""}, clock, 10s);
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

TEST_CASE("hashing again gives the hash that the child prints, whatever its exit code") {
  for (const char* const exit_code : {"0", "3"}) {
    const auto hash = rehash("echo '{\"reason\":null,\"weights_sha256\": \"" +
                             std::string(64, 'a') + "\"}'; exit " + exit_code);
    REQUIRE(hash.has_value());
    CHECK(*hash == std::string(64, 'a'));
  }
}

TEST_CASE("hashing again counts no hash that is torn, or of a child that was killed") {
  const std::string whole = "{\"weights_sha256\":\"" + std::string(64, 'a') + "\"}";
  CHECK_FALSE(rehash("echo '" + whole.substr(0, 60) + "'").has_value());
  CHECK_FALSE(rehash("echo '" + whole + "'; kill -9 $$").has_value());
}

TEST_CASE("hashing again that failed gives the reason in words, not the document around it") {
  const auto told = rehash(
      R"(printf '%s\n' 'evalcar inspect: x' '{"layout":"dcp","reason":"a \"b\" is torn","weights_sha256":null,)"
      R"("kinds":[{"reason":"another"}]}'; exit 1)");
  REQUIRE_FALSE(told.has_value());
  CHECK(told.error().message == "hashing again failed: a \"b\" is torn");

  const auto silent = rehash("exit 7");
  REQUIRE_FALSE(silent.has_value());
  CHECK(silent.error().message == "hashing again failed: exit code 7");
}

TEST_CASE("hashing again asks for the weights with the base model that they were loaded with") {
  const testing::TemporaryFolder folder;
  const std::string heard = folder / "heard";
  const std::string script = R"(echo "$*" > )" + heard;
  (void)rehash(script, {"/lease", "average", "/base"});
  CHECK(text_of(heard) ==
        "inspect /lease --weights average --hash --json --model_name_or_class /base\n");
  (void)rehash(script, {"/lease", "ema", ""});
  CHECK(text_of(heard) == "inspect /lease --weights ema --hash --json\n");
}
