#include "agent/watch/neighbour.h"

#include <catch2/catch_test_macros.hpp>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "agent/watch/watcher.h"
#include "tests/unit/agent/fake_notifier.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::watch;
using evalcar::checkpoint::Completeness;
using evalcar::checkpoint::KindState;
using evalcar::checkpoint::Layout;
using evalcar::checkpoint::LayoutReport;
using evalcar::test::FakeClock;
using evalcar::test::MemoryFileSystem;
using evalcar::testing::FakeNotifier;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

const std::initializer_list<std::string> kNames = {"config.json", "w.pt", "processor.json",
                                                   "tokenizer.json"};

/// A layout of one file of weights, which is whole as soon as it is there; a LoRA adapter if there
/// is that one's configuration.
Inspect inspect_as(Layout layout) {
  return [layout](const FileSystem& files, const std::string& dir) -> Result<LayoutReport> {
    if (!files.info(dir).has_value()) return make_error(ErrorCode::kNotFound, dir);
    LayoutReport report;
    report.layout = layout;
    if (files.info(dir + "/adapter.json").has_value()) report.layout = Layout::kLoraAdapter;
    KindState state;
    state.completeness = Completeness::kIncomplete;
    state.reason = "no weights";
    for (const std::string& name : kNames) {
      if (!files.info(dir + "/" + name).has_value()) continue;
      state.files.push_back(name);
      if (holds_weights(name)) state.completeness = Completeness::kComplete;
    }
    report.kinds.push_back(state);
    return report;
  };
}

struct Run {
  FakeClock clock;
  MemoryFileSystem files{clock};
  FakeNotifier notifier;
  Layout layout;
  Watcher watcher;

  explicit Run(Layout of, const std::string& base_model = "")
      : layout(of), watcher(make(base_model)) {
    files.put_directory("/out");
    files.mount("/out", 7, 0xEF53);
  }
  Watcher make(const std::string& base_model) {
    WatchOptions options;
    options.output_dir = "/out";
    options.base_model = base_model;
    return {files, clock, notifier, options, inspect_as(layout)};
  }
  void put(const std::string& path) {
    clock.advance(milliseconds(10));
    const bool there = files.exists("/out/" + path);
    files.put_file("/out/" + path, "whole");
    const auto now = files.info("/out/" + path);
    if (!there) {  // as a disk does for a new name
      REQUIRE(files.set_mtime(parent_path("/out/" + path), now->mtime_ns).has_value());
    }
    notifier.hints.folders.insert(parent_path("/out/" + path));
    notifier.hints.folders.insert("/out");
  }
  void save(const std::string& folder, std::vector<std::string> names = kNames) {
    for (const std::string& name : names) put(folder + "/" + name);
  }
  void remove(const std::string& path) {
    clock.advance(milliseconds(10));
    REQUIRE(files.remove_file("/out/" + path).has_value());
    notifier.hints.folders.insert(parent_path("/out/" + path));
  }
  std::vector<Sighting> look_after(milliseconds time) {
    clock.advance(time);
    return watcher.step();
  }
};

/// "step:verdict" of each, as told.
using Told = std::vector<std::pair<std::int64_t, Verdict>>;
Told told(const std::vector<Sighting>& seen) {
  Told out;
  for (const Sighting& s : seen) out.emplace_back(s.step, s.verdict);
  return out;
}

}  // namespace

// ---- what a delete has left

TEST_CASE("what a delete has left of a checkpoint that nobody saw whole is none") {
  Run run(Layout::kLmmsEngineFsdp2);
  run.save("checkpoint-10");
  run.save("checkpoint-20");
  run.remove("checkpoint-10/processor.json");

  const auto seen = run.look_after(seconds(1));

  REQUIRE(told(seen) == Told{{20, Verdict::kComplete}, {10, Verdict::kWaiting}});
  CHECK(seen[1].reason.find("processor.json is in checkpoint-20 and not here") == 0);
  CHECK(told(run.look_after(seconds(31))) == Told{{10, Verdict::kOvertaken}});

  SECTION("unless somebody says that it is whole") {
    run.put("checkpoint-10/config.json");
    CHECK(told(run.look_after(seconds(1))) == Told{{10, Verdict::kComplete}});
  }
}

TEST_CASE("a newer complete one ends no doubt about what a delete has left") {
  Run run(Layout::kHuggingFace);
  run.save("checkpoint-10");
  CHECK(told(run.look_after(seconds(1))) == Told{{10, Verdict::kWaiting}});
  run.save("checkpoint-20");
  CHECK(told(run.look_after(seconds(1))) == Told{{20, Verdict::kWaiting}});
  run.clock.advance(seconds(30));
  run.remove("checkpoint-10/tokenizer.json");

  CHECK(told(run.look_after(seconds(1))) ==
        Told{{20, Verdict::kComplete}, {10, Verdict::kWaiting}});
}

TEST_CASE("files that no evaluation reads may be deleted from a checkpoint") {
  Run run(Layout::kLmmsEngineFsdp2);
  run.save("checkpoint-10",
           {"config.json", "w.pt", "processor.json", "tokenizer.json", "optimizer"});
  run.save("checkpoint-20");
  run.remove("checkpoint-10/optimizer");

  CHECK(told(run.look_after(seconds(1))) ==
        Told{{20, Verdict::kComplete}, {10, Verdict::kComplete}});
}

TEST_CASE("a checkpoint that never had a file of a newer one is whole") {
  Run run(Layout::kLmmsEngineFsdp2);
  run.save("checkpoint-10", {"config.json", "w.pt", "tokenizer.json"});
  run.save("checkpoint-20");

  CHECK(told(run.look_after(seconds(1))) ==
        Told{{20, Verdict::kComplete}, {10, Verdict::kComplete}});
}

TEST_CASE("a step that is saved again is not compared with one of the life before") {
  Run run(Layout::kLmmsEngineFsdp2);
  run.save("checkpoint-20");
  run.save("checkpoint-10", {"config.json", "w.pt", "tokenizer.json", "temporary"});
  run.remove("checkpoint-10/temporary");

  CHECK(told(run.look_after(seconds(1))) ==
        Told{{20, Verdict::kComplete}, {10, Verdict::kComplete}});
}

TEST_CASE("the next one of another layout is passed over") {
  Run run(Layout::kLmmsEngineFsdp2);
  run.save("checkpoint-10");
  run.save("checkpoint-15", {"adapter.json", "w.pt"});
  run.save("checkpoint-20");
  run.remove("checkpoint-10/processor.json");

  const auto seen = run.look_after(seconds(1));

  REQUIRE(told(seen) ==
          Told{{20, Verdict::kComplete}, {15, Verdict::kComplete}, {10, Verdict::kWaiting}});
  CHECK(seen[2].reason.find("processor.json is in checkpoint-20") == 0);
}

TEST_CASE("a newer one need not be complete to tell what is missing") {
  Run run(Layout::kHuggingFace);
  run.save("checkpoint-10",
           {"config.json", "w.pt", "processor.json", "tokenizer.json", "trainer_state.json"});
  run.save("checkpoint-20");
  run.remove("checkpoint-10/tokenizer.json");

  CHECK(told(run.look_after(seconds(1))) == Told{{20, Verdict::kWaiting}, {10, Verdict::kWaiting}});
}

TEST_CASE("files that a run began to write in its middle are missing in none before") {
  Run run(Layout::kLmmsEngineFsdp2);
  for (const std::string folder : {"checkpoint-5", "checkpoint-10"}) {
    run.save(folder, {"config.json", "w.pt", "tokenizer.json", "optimizer"});
  }
  run.save("checkpoint-20");
  run.remove("checkpoint-5/optimizer");
  run.remove("checkpoint-10/optimizer");

  // 10 waits until 5 was looked at, too.
  CHECK(told(run.look_after(seconds(1))) ==
        Told{{20, Verdict::kComplete}, {10, Verdict::kWaiting}, {5, Verdict::kComplete}});
  CHECK(told(run.look_after(seconds(11))) == Told{{10, Verdict::kComplete}});
}

TEST_CASE("where a base model stands in for small files nothing is missing") {
  Run run(Layout::kLmmsEngineFsdp2, "/base");
  run.save("checkpoint-10");
  run.save("checkpoint-20");
  run.remove("checkpoint-10/processor.json");

  CHECK(told(run.look_after(seconds(1))) ==
        Told{{20, Verdict::kComplete}, {10, Verdict::kComplete}});
}

// ---- how long whole files without a mark must rest

namespace {

/// A run without marks whose checkpoint-10 is complete.
struct Markless : Run {
  Markless() : Run(Layout::kHuggingFace) {
    CHECK(look_after(seconds(1)).empty());
    save_watched("checkpoint-10");
    CHECK(told(look_after(seconds(1))) == Told{{10, Verdict::kWaiting}});
    CHECK(look_after(seconds(28)).empty());  // the first has nothing to be compared with
    REQUIRE(told(look_after(seconds(2))) == Told{{10, Verdict::kComplete}});
  }
  /// The first look at it sees no weights.
  void save_watched(const std::string& folder, std::vector<std::string> names = kNames) {
    put(folder + "/config.json");
    look_after(seconds(1));
    save(folder, {names.begin() + 1, names.end()});
  }
  /// Whole since `now`, it is complete neither before the settle time nor later.
  void check_waits_for_the_settle_time(std::int64_t step) {
    look_after(seconds(1));
    CHECK(look_after(seconds(28)).empty());
    CHECK(told(look_after(seconds(2))) == Told{{step, Verdict::kComplete}});
  }
};

}  // namespace

TEST_CASE("a save like all others of its run rests for a quarter of the settle time") {
  Markless run;
  run.save_watched("checkpoint-20");
  CHECK(told(run.look_after(seconds(1))) == Told{{20, Verdict::kWaiting}});
  CHECK(run.watcher.until_due() <= milliseconds(7'500));
  CHECK(run.look_after(seconds(7)).empty());
  CHECK(told(run.look_after(seconds(1))) == Told{{20, Verdict::kComplete}});
}

TEST_CASE("what a save is compared with may have been deleted meanwhile") {
  Markless run;
  for (const std::string& name : kNames) run.remove("checkpoint-10/" + name);
  REQUIRE(run.files.remove_directory("/out/checkpoint-10").has_value());
  run.save_watched("checkpoint-20");
  run.look_after(seconds(1));
  CHECK(told(run.look_after(seconds(8))) == Told{{20, Verdict::kComplete}});
}

TEST_CASE("a save that is not like all others rests for the whole settle time") {
  Markless run;
  SECTION("a small file has not come") {
    run.save_watched("checkpoint-20", {"config.json", "w.pt", "tokenizer.json"});
    run.check_waits_for_the_settle_time(20);
    // From here on they differ: nothing is known of what the next one will have.
    run.save_watched("checkpoint-30");
    run.check_waits_for_the_settle_time(30);
  }
  SECTION("a small file is shorter") {
    run.save_watched("checkpoint-20");
    run.files.put_file("/out/checkpoint-20/tokenizer.json", "who");
    run.check_waits_for_the_settle_time(20);
  }
  SECTION("the others had a mark") {
    Run marked(Layout::kHuggingFace);
    marked.look_after(seconds(1));
    marked.save("checkpoint-10");
    marked.put("checkpoint-10/trainer_state.json");
    REQUIRE(told(marked.look_after(seconds(1))) == Told{{10, Verdict::kComplete}});
    marked.put("checkpoint-20/config.json");
    marked.look_after(seconds(1));
    marked.save("checkpoint-20", {"w.pt", "processor.json", "tokenizer.json"});
    marked.look_after(seconds(1));
    CHECK(marked.look_after(seconds(28)).empty());
  }
  SECTION("its weights were there at the first look") {
    run.save("checkpoint-20");
    run.check_waits_for_the_settle_time(20);
  }
  SECTION("on a file server times tell nothing") {
    run.files.mount("/out", 8, 0x6969);
    run.watcher.rescan();
    run.look_after(seconds(11));
    run.save_watched("checkpoint-20");
    run.check_waits_for_the_settle_time(20);
  }
  SECTION("the directory was away") {
    REQUIRE(run.files.rename("/out", "/elsewhere").has_value());
    run.watcher.rescan();
    run.look_after(seconds(11));
    REQUIRE_FALSE(run.watcher.trouble().empty());
    REQUIRE(run.files.rename("/elsewhere", "/out").has_value());
    run.put("checkpoint-20/config.json");
    run.watcher.rescan();
    run.look_after(seconds(11));
    run.save("checkpoint-20", {"w.pt", "processor.json", "tokenizer.json"});
    run.check_waits_for_the_settle_time(20);
  }
}

TEST_CASE("a folder that was there before the watcher rests for the whole settle time") {
  Run run(Layout::kHuggingFace);
  run.save("checkpoint-10");
  run.clock.advance(seconds(1));
  run.save("checkpoint-20");

  run.look_after(seconds(1));
  CHECK(run.look_after(seconds(28)).empty());

  // 20 ends the doubt about 10, as a newer one that is complete.
  CHECK(told(run.look_after(seconds(2))) ==
        Told{{20, Verdict::kComplete}, {10, Verdict::kComplete}});
}

TEST_CASE("shards of DCP's safetensors writer never tell that they are all") {
  Run run(Layout::kDcpSafetensors);
  run.look_after(seconds(1));
  run.save("checkpoint-10");
  run.look_after(seconds(1));
  REQUIRE(told(run.look_after(seconds(31))) == Told{{10, Verdict::kComplete}});
  run.put("checkpoint-20/config.json");
  run.look_after(seconds(1));
  run.save("checkpoint-20", {"w.pt", "processor.json", "tokenizer.json"});
  run.look_after(seconds(1));
  CHECK(run.look_after(seconds(28)).empty());
}
