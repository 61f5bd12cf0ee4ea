// What the doctor makes of facts; how it gets them is tests/e2e/test_doctor.py.
#include "agent/cli/doctor.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <span>

#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"
#include "tests/unit/support/temporary_directory.h"

using namespace evalcar;
using namespace evalcar::cli;
using Catch::Matchers::ContainsSubstring;
using Level = Finding::Level;

namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;

GpuFacts good_gpu() {
  return {.device = "cuda:0",
          .name = "A100",
          .capability = 80,
          .memory_bytes = 80 * kGiB,
          .users = {},
          .free_bytes = 79 * kGiB,
          .lost = false};
}

/// What check_machine() finds under this name, with these limits of inotify and this time.
Finding of_machine(const std::string& name, const std::string& most_watches,
                   std::chrono::hours since_test_began = {}) {
  test::FakeClock clock;
  clock.advance(since_test_began);
  test::MemoryFileSystem files(clock);
  const test::TemporaryDirectory folder;
  files.put_directory(folder.path());
  if (!most_watches.empty()) {
    files.put_file("/proc/sys/fs/inotify/max_user_watches", most_watches + "\n");
  }
  for (const Finding& found : check_machine(files, clock, {.path = folder / "run.db"})) {
    if (found.name == name) return found;
  }
  FAIL("nothing is said of " << name);
  return {};
}

}  // namespace

TEST_CASE("too few watches of inotify are warned of, with what raises them") {
  const Finding few = of_machine("inotify", "512");
  CHECK(few.level == Level::kWarning);
  CHECK_THAT(few.text, ContainsSubstring("max_user_watches 512") && ContainsSubstring("polling"));
  CHECK_THAT(few.mend, ContainsSubstring("sysctl fs.inotify.max_user_watches="));
  CHECK(of_machine("inotify", "65536").level == Level::kOk);
  CHECK_THAT(of_machine("inotify", "").text, ContainsSubstring("max_user_watches not known"));
}

TEST_CASE("a clock that was never set is warned of") {
  constexpr auto kTenYears = std::chrono::hours(24 * 365 * 10);
  const Finding unset = of_machine("clock", "65536", -kTenYears);
  CHECK(unset.level == Level::kWarning);
  CHECK_THAT(unset.text, ContainsSubstring("is this the time?"));
  CHECK_THAT(unset.mend, ContainsSubstring("chrony"));
  CHECK_THAT(of_machine("clock", "65536").text, !ContainsSubstring("is this the time?"));
}

TEST_CASE("a state directory that is a file is a problem, with where to put it") {
  test::FakeClock clock;
  test::MemoryFileSystem files(clock);
  files.put_file("/state", "");
  const Finding found = check_machine(files, clock, {.path = "/state/run.db"}).front();
  CHECK(found.name == "state directory");
  CHECK(found.level == Level::kProblem);
  CHECK_THAT(found.mend, ContainsSubstring("store.path"));
}

TEST_CASE("a GPU that is new, large and free is well") {
  const Findings findings = judge_gpu(good_gpu(), false);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].level == Level::kOk);
  CHECK_THAT(findings[0].text, ContainsSubstring("compute capability 8.0"));
}

TEST_CASE("a GPU below 7.5 is refused, a small one warned of, one in use told with its users") {
  GpuFacts old = good_gpu();
  old.capability = 70;
  CHECK(judge_gpu(old, false)[0].level == Level::kProblem);
  old.capability = 75;
  CHECK(judge_gpu(old, false)[0].level == Level::kOk);

  GpuFacts little = good_gpu();
  little.memory_bytes = 16 * kGiB - 1;
  const Findings memory = judge_gpu(little, false);
  REQUIRE(memory.size() == 2);
  CHECK(memory[1].level == Level::kWarning);
  CHECK_THAT(memory[1].text, ContainsSubstring("less than 16 GB"));
  CHECK_THAT(memory[1].mend, ContainsSubstring("evaluate.max_pixels"));

  GpuFacts used = good_gpu();
  used.users = {17, 4711};
  const Findings use = judge_gpu(used, false);
  REQUIRE(use.size() == 2);
  CHECK_THAT(use[1].text, ContainsSubstring("17, 4711"));
  CHECK_THAT(use[1].mend, ContainsSubstring("evaluate.share_gpu = true"));
  CHECK(judge_gpu(used, true)[1].mend.empty());

  GpuFacts lost = good_gpu();
  lost.lost = true;
  CHECK(judge_gpu(lost, false)[0].level == Level::kProblem);
}

TEST_CASE("of several GPUs those that the configuration names are judged") {
  CHECK(runs_on("auto", 1, "cuda:0"));
  CHECK(runs_on("cuda", 1, "cuda:0"));
  CHECK_FALSE(runs_on("cuda", 1, "cuda:1"));
  CHECK(runs_on("cuda:1", 1, "cuda:1"));
  CHECK_FALSE(runs_on("cuda:1", 1, "cuda:0"));
  CHECK_FALSE(runs_on("cuda:1", 1, "cuda:10"));
  CHECK(runs_on("cuda:1", 2, "cuda:2"));
  CHECK_FALSE(runs_on("cuda:1", 2, "cuda:3"));
  CHECK_FALSE(runs_on("cpu", 1, "cuda:0"));
  CHECK_FALSE(runs_on("cuda:x", 1, "cuda:0"));
}

TEST_CASE("eval_steps that the trainer's saves do not meet are warned of") {
  CHECK(judge_steps(0, 300).level == Level::kOk);
  CHECK(judge_steps(1000, 0).level == Level::kOk);
  CHECK(judge_steps(1000, 500).level == Level::kOk);
  const Finding never = judge_steps(1000, 300);
  CHECK(never.level == Level::kWarning);
  CHECK_THAT(never.text, ContainsSubstring("they meet only every 3000 steps"));
  CHECK_THAT(never.mend, ContainsSubstring("a multiple of 300"));
  CHECK_THAT(judge_steps(500, 1000).text, ContainsSubstring("only every 1000 steps"));
  CHECK_THAT(judge_steps(INT64_MAX, 1000).text, ContainsSubstring("hardly ever"));
}

TEST_CASE("a server's address is taken apart, and nothing else is taken for one") {
  CHECK(parse_server_url("http://127.0.0.1:8000")->port == "8000");
  CHECK(parse_server_url("http://host/health?x=1")->host == "host");
  CHECK(parse_server_url("http://host")->port == "80");
  CHECK(parse_server_url("http://[::1]:8000")->host == "::1");
  for (const char* const bad :
       {"", "host:8000", "https://host", "http://", "http://:80", "http://a:0", "http://a:65536",
        "http://a:80x", "http://u@h:80", "http://a b:80"}) {
    INFO(bad);
    CHECK_FALSE(parse_server_url(bad).has_value());
  }
}

TEST_CASE(
    "that loopback without a token is open to every user of the machine is told with what closes "
    "it") {
  test::FakeClock clock;
  test::MemoryFileSystem files(clock);
  const auto found = [&files](const config::ServerSettings& settings) {
    const Findings findings = check_api(files, settings);
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].name == "HTTP API");
    return findings[0];
  };
  const std::string secret = "0123456789abcdef";
  auto token = files.create("/token", 0600);
  REQUIRE(token.has_value());
  REQUIRE((*token)->append(std::as_bytes(std::span(secret))).has_value());
  REQUIRE((*token)->close().has_value());

  const Finding open = found({.listen = "127.0.0.1:8000"});
  CHECK(open.level == Level::kWarning);
  CHECK_THAT(open.text, ContainsSubstring("127.0.0.1:8000: without a token every user"));
  CHECK_THAT(open.mend,
             ContainsSubstring("server.token_file") && ContainsSubstring("server.unix_socket"));
  CHECK(found({.listen = "127.0.0.1:8000", .token_file = "/token"}).level == Level::kOk);
  CHECK(found({.unix_socket = "/run/evalcar.sock"}).level == Level::kOk);
  CHECK(found({.listen = "0.0.0.0:8000"}).level == Level::kProblem);
  CHECK_THAT(found({.listen = "127.0.0.1:8000", .token_file = "/nowhere"}).text,
             ContainsSubstring("server.token_file"));
  CHECK(check_api(files, {}).empty());
}

TEST_CASE("an answer is read whole, in chunks too, and broken ones are refused") {
  const auto plain = parse_http_answer("HTTP/1.1 200 OK\r\nA: b\r\n\r\n{\"x\":1}");
  REQUIRE(plain.has_value());
  CHECK(plain->status == 200);
  CHECK(plain->body == "{\"x\":1}");
  const auto chunked = parse_http_answer(
      "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: "
      "Chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n");
  REQUIRE(chunked.has_value());
  CHECK(chunked->status == 404);
  CHECK(chunked->body == "abc0123456789");
  for (const std::string_view bad :
       {"", "SSH-2.0-OpenSSH_9.2\r\n\r\n", "HTTP/1.1 2x0 OK\r\n\r\n", "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\nx",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc"}) {
    INFO(bad);
    CHECK_FALSE(parse_http_answer(bad).has_value());
  }
}
