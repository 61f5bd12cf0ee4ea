#include "agent/watch/watcher.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <utility>

#include "tests/unit/agent/watch_bench.h"

using namespace evalcar;
using namespace evalcar::watch;
using namespace evalcar::testing;

namespace {

/// What a process before this one told of its checkpoints.
KnownContents remembered(const std::vector<Sighting>& seen) {
  KnownContents known;
  for (const Sighting& s : seen) {
    if (s.verdict != Verdict::kComplete) continue;
    KnownContent& content = known[s.step][s.kind];
    content.fingerprint = s.fingerprint;
    for (const WatchedFile& file : s.files) {
      const FileInfo& id = file.identity;
      content.files.push_back({file.relative, id.inode, id.size_bytes, id.mtime_ns});
    }
  }
  return known;
}

/// Weights in two shards, and small files that a delete may take first.
Result<LayoutReport> inspect_shards(const FileSystem& files, const std::string& dir) {
  LayoutReport report;
  report.layout = Layout::kLmmsEngineFsdp2;
  KindState state;
  state.completeness = Completeness::kComplete;
  for (const char* name : {"0.pt", "1.pt", "config.json", "tokenizer.json"}) {
    const auto content = read_file(files, dir + "/" + name, 100);
    if (!content.has_value()) continue;
    state.files.emplace_back(name);
    if (holds_weights(name) && !content->starts_with("whole")) {
      state.completeness = Completeness::kIncomplete;
      state.reason = std::string(name) + " is short";
    }
  }
  report.kinds.push_back(state);
  return report;
}

struct Restarted : Bench {
  Watcher first{files, clock, notifier, {.output_dir = "/out"}, inspect_shards};
  Watcher second{files, clock, notifier, {.output_dir = "/out"}, inspect_shards};
  std::vector<Sighting> before;
  Restarted() {
    for (const char* name : {"0.pt", "1.pt", "config.json", "tokenizer.json"}) {
      put(std::string("checkpoint-5/") + name);
    }
    clock.advance(seconds(1));
    before = first.step();
    REQUIRE(regular(before) == Told{{5, Verdict::kComplete}});
  }
  std::vector<Sighting> look_with(Watcher& which) {
    clock.advance(seconds(1));
    return which.step();
  }
  std::vector<Sighting> start_again() {
    second.begin(remembered(before));
    clock.advance(seconds(1));
    return second.step();
  }
};

}  // namespace

TEST_CASE("after a restart the same files are complete at once") {
  Restarted r;
  const auto after = r.start_again();
  REQUIRE(r.regular(after) == Told{{5, Verdict::kComplete}});
  CHECK(after[0].fingerprint == r.before[0].fingerprint);
}

TEST_CASE("a restart during a delete finds no other checkpoint, however long it takes") {
  Restarted r;
  REQUIRE(r.files.remove_file("/out/checkpoint-5/tokenizer.json").has_value());
  const auto after = r.start_again();
  REQUIRE(r.regular(after) == Told{{5, Verdict::kWaiting}});
  CHECK(after[0].reason.find("tokenizer.json was there and is gone") != std::string::npos);
  r.clock.advance(seconds(60));
  CHECK(r.regular(r.second.step()) == Told{{5, Verdict::kTorn}});
  r.clock.advance(seconds(60));
  CHECK(r.second.step().empty());
}

TEST_CASE("a restart between two shards of a rewrite waits for the second") {
  Restarted r;
  r.put("checkpoint-5/0.pt", "whole again");
  CHECK(r.regular(r.start_again()) == Told{{5, Verdict::kWaiting}});
  r.put("checkpoint-5/1.pt", "whole again");
  r.put("checkpoint-5/config.json", "{ }");
  r.clock.advance(seconds(1));
  const auto rewritten = r.second.step();
  REQUIRE(r.regular(rewritten) == Told{{5, Verdict::kComplete}});
  CHECK(rewritten[0].fingerprint != r.before[0].fingerprint);
}

TEST_CASE("a trainer killed between two shards of a rewrite leaves no checkpoint") {
  Restarted r;
  r.put("checkpoint-5/0.pt", "whole again");
  r.clock.advance(seconds(1));
  REQUIRE(r.regular(r.first.step()) == Told{{5, Verdict::kWaiting}});
  r.clock.advance(seconds(60));
  const auto at_rest = r.first.step();
  REQUIRE(r.regular(at_rest) == Told{{5, Verdict::kTorn}});
  CHECK(at_rest[0].reason.find("in part") != std::string::npos);
  // It comes back to the step.
  r.put("checkpoint-5/0.pt", "whole at last");
  r.put("checkpoint-5/1.pt", "whole at last");
  r.put("checkpoint-5/config.json", "{ }");
  r.clock.advance(seconds(1));
  CHECK(r.regular(r.first.step()) == Told{{5, Verdict::kComplete}});
}

namespace {

/// Shards of a save that was killed before its configuration: nothing of it was ever complete.
struct Unfinished : Bench {
  Watcher first{files, clock, notifier, {.output_dir = "/out"}, inspect_marked};
  Watcher second{files, clock, notifier, {.output_dir = "/out"}, inspect_marked};

  explicit Unfinished(const std::string& second_shard = "whole 1") {
    put("checkpoint-5/0.pt", "whole 1");
    put("checkpoint-5/1.pt", second_shard);
    CHECK(look_with(first) == Told{{5, Verdict::kWaiting}});
  }
  Told look_with(Watcher& which, seconds after = seconds(1)) {
    clock.advance(after);
    return regular(which.step());
  }
  /// As of a process that was killed, with what it had stored.
  void start_again() { second.begin({}, first.unfinished().value()); }
  static Result<LayoutReport> inspect_marked(const FileSystem& files, const std::string& dir) {
    auto report = inspect_shards(files, dir);
    if (report.has_value() && !files.info(dir + "/config.json").has_value()) {
      report->kinds[0].completeness = Completeness::kIncomplete;
      report->kinds[0].reason = "config.json is not there";
    }
    return report;
  }
};

}  // namespace

TEST_CASE("a save over a part of one that was never complete is no checkpoint, restart or not") {
  const bool seen_before_restart = GENERATE(false, true);
  Unfinished u;
  u.clock.advance(seconds(60));
  if (!seen_before_restart) u.start_again();
  u.put("checkpoint-5/1.pt", "whole 2");  // the same step again, and killed before 0.pt
  u.put("checkpoint-5/config.json");
  if (seen_before_restart) {
    CHECK(u.look_with(u.first) == Told{{5, Verdict::kWaiting}});
    u.start_again();
  }
  CHECK(u.look_with(u.second) == Told{{5, Verdict::kWaiting}});
  CHECK(u.look_with(u.second, seconds(60)) == Told{{5, Verdict::kTorn}});
  CHECK(u.look_with(u.second, seconds(600)) == Told{});
  // It comes back once more, and ends.
  for (const char* name : {"0.pt", "1.pt"}) {
    u.put(std::string("checkpoint-5/") + name, "whole 3");
  }
  u.put("checkpoint-5/config.json");
  CHECK(u.look_with(u.second) == Told{{5, Verdict::kComplete}});
  CHECK(u.second.unfinished().value().empty());
}

TEST_CASE("a file that was torn and is whole is told by its bytes to be of the same save or not") {
  const bool restart = GENERATE(false, true);
  const bool another = GENERATE(false, true);
  Unfinished u(another ? "WH" : "wh");  // killed here; "whole" is the whole of it
  u.clock.advance(seconds(60));
  if (restart) u.start_again();
  u.put("checkpoint-5/1.pt", "whole 1");
  u.put("checkpoint-5/config.json");
  Watcher& watcher = restart ? u.second : u.first;

  CHECK(u.look_with(watcher).size() == 1);  // after a pause it is waited for, at least
  (void)u.look_with(watcher, seconds(60));

  const auto memory = watcher.unfinished().value();
  CHECK(memory.contains(5) == another);
}

TEST_CASE("a save that goes on over a restart is complete when it ends") {
  Unfinished u;
  u.start_again();
  u.put("checkpoint-5/config.json");
  CHECK(u.look_with(u.second) == Told{{5, Verdict::kComplete}});
}

TEST_CASE("a folder made anew while no agent ran has nothing of the one before") {
  Unfinished u;
  u.start_again();
  REQUIRE(remove_tree(u.files, "/out/checkpoint-5").has_value());
  for (const char* name : {"0.pt", "1.pt", "config.json"}) {
    u.put(std::string("checkpoint-5/") + name);
  }
  CHECK(u.look_with(u.second) == Told{{5, Verdict::kComplete}});
}

TEST_CASE("on a file server two saves that seem to be mixed are waited for, no more") {
  Unfinished u;
  u.files.mount("/out", 8, 0x6969);
  u.put("checkpoint-5/1.pt", "whole 2");
  u.put("checkpoint-5/config.json");
  CHECK(u.look_with(u.first) == Told{{5, Verdict::kWaiting}});
  CHECK(u.look_with(u.first, seconds(60)) == Told{{5, Verdict::kComplete}});
}

TEST_CASE("on NFS a shard that looks rewritten may have been told from memory") {
  const bool stood = GENERATE(false, true);
  Restarted r;
  r.files.mount("/out", 8, 0x6969);
  if (stood) r.clock.advance(seconds(120));
  r.put("checkpoint-5/0.pt", "whole again");
  r.first.rescan();
  REQUIRE(r.regular(r.look_with(r.first)) == Told{{5, Verdict::kWaiting}});
  r.clock.advance(seconds(30));
  CHECK(r.regular(r.look_with(r.first)) == Told{{5, stood ? Verdict::kTorn : Verdict::kComplete}});
}

TEST_CASE("a save over the rest of one that was killed is complete when nothing of that is left") {
  Bench bench;
  Watcher watcher(bench.files, bench.clock, bench.notifier, {.output_dir = "/out"}, inspect_shards);
  const auto look = [&] {
    bench.clock.advance(seconds(1));
    return bench.regular(watcher.step());
  };
  bench.put("checkpoint-5/0.pt");
  bench.put("checkpoint-5/1.pt", "wh");  // killed here
  bench.put("checkpoint-5/config.json");
  CHECK(look() == Told{{5, Verdict::kWaiting}});

  bench.put("checkpoint-5/1.pt", "w");  // the same step again: this rank is the first
  CHECK(look().empty());
  bench.put("checkpoint-5/1.pt", "whole again");  // and 0.pt is still that of the first save
  CHECK(look() == Told{{5, Verdict::kWaiting}});
  bench.put("checkpoint-5/0.pt", "whole again");
  bench.put("checkpoint-5/config.json");
  CHECK(look() == Told{{5, Verdict::kComplete}});
}
