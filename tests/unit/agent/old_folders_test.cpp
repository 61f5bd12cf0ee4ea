// How soon a change in an old folder is seen that gave no hint, and what asking for it costs.
#include <catch2/catch_test_macros.hpp>

#include "tests/unit/agent/watch_bench.h"

using namespace evalcar;
using namespace evalcar::testing;

namespace {

/// Folders at rest, of which nothing gives a hint any more.
struct ManyAtRest : Bench {
  explicit ManyAtRest(int folders) {
    files.mount("/out", 8, 0xef53);
    for (int step = 1; step <= folders; ++step) put_checkpoint(folder_of(step));
    for (int i = 0; i < 4; ++i) poll();
    REQUIRE(watcher.settled());
    notifier.hints = {};
  }
  static std::string folder_of(int step) { return "checkpoint-" + std::to_string(step); }
  std::vector<Sighting> poll() {
    clock.advance(seconds(10));
    auto seen = watcher.step();
    while (watcher.until_due() == std::chrono::milliseconds(0)) {
      const auto more = watcher.step();
      seen.insert(seen.end(), more.begin(), more.end());
    }
    return seen;
  }
  void write_silently(const std::string& name, const std::string& content) {
    clock.advance(seconds(1));
    files.put_file("/out/" + name, content);
  }
  /// After how many polls anything of the step is told.
  int polls_until_told(std::int64_t step) {
    for (int polls = 1; polls <= 20; ++polls) {
      for (const Sighting& seen : poll()) {
        if (seen.step == step) return polls;
      }
    }
    return -1;
  }
};

}  // namespace

TEST_CASE("a save into an old folder that gave no hint is found at the next poll of hundreds") {
  ManyAtRest bench(210);
  bench.write_silently("checkpoint-5/config.json", "{ }");
  bench.write_silently("checkpoint-5/w.pt", "whole, another");
  CHECK(bench.polls_until_told(5) == 1);

  bench.write_silently("checkpoint-6/ema/w.pt", "whole");
  CHECK(bench.polls_until_told(6) == 1);

  for (int step = 7; step < 15; ++step) {  // one file of the two alone, whoever's turn it is
    const std::string folder = ManyAtRest::folder_of(step);
    bench.write_silently(folder + (step % 2 == 0 ? "/w.pt" : "/config.json"), "whole, another");
    const int polls = bench.polls_until_told(step);
    CHECK(polls >= 1);
    CHECK(polls <= 2);
  }
}

TEST_CASE("of a thousand old folders each is asked for in a few polls, and a poll costs little") {
  ManyAtRest bench(1000);
  for (const int step : {3, 400, 700, 980}) {
    bench.write_silently(ManyAtRest::folder_of(step) + "/config.json", "{ }");
    bench.write_silently(ManyAtRest::folder_of(step) + "/w.pt", "whole, another");
    const int polls = bench.polls_until_told(step);
    CHECK(polls >= 1);
    CHECK(polls <= 5);
  }

  for (int i = 0; i < 8; ++i) bench.poll();
  bench.files.reset_calls();
  for (int i = 0; i < 16; ++i) bench.poll();
  CHECK(bench.files.count("info_followed") / 16 < 20 * 4 + 200 * 3);
  CHECK(bench.files.count("list") / 16 < 60);
}
