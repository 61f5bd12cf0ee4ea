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
using std::chrono::seconds;

namespace {

const std::initializer_list<std::string> kNames = {"config.json", "w.pt", "processor.json",
                                                   "tokenizer.json"};

/// A layout of one file of weights, which is whole as soon as it is there.
Inspect inspect_as(Layout layout) {
  return [layout](const FileSystem& files, const std::string& dir) -> Result<LayoutReport> {
    if (!files.info(dir).has_value()) return make_error(ErrorCode::kNotFound, dir);
    LayoutReport report;
    report.layout = layout;
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

  explicit Run(Layout of) : layout(of), watcher(make()) {
    files.put_directory("/out");
    files.mount("/out", 7, 0xEF53);
  }
  Watcher make() { return {files, clock, notifier, {.output_dir = "/out"}, inspect_as(layout)}; }
  void put(const std::string& path) {
    clock.advance(std::chrono::milliseconds(10));
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
    clock.advance(std::chrono::milliseconds(10));
    REQUIRE(files.remove_file("/out/" + path).has_value());
    notifier.hints.folders.insert(parent_path("/out/" + path));
  }
  std::vector<Sighting> look_after(std::chrono::milliseconds time) {
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

TEST_CASE("another layout has other files") {
  Run run(Layout::kHuggingFace);
  const std::vector<WatchedFile> files = {{"config.json", {}}, {"w.pt", {}}};
  CompleteKind other{"checkpoint-20", Layout::kLoraAdapter, {"adapter_config.json"}, 0};
  CHECK_FALSE(lacks(Layout::kHuggingFace, files, other).has_value());
  other.layout = Layout::kHuggingFace;
  CHECK(lacks(Layout::kHuggingFace, files, other) == "adapter_config.json");
}

// ---- how long whole files without a mark must rest

TEST_CASE("without a mark, a save with all files of the last complete one rests for a short time") {
  Run run(Layout::kHuggingFace);
  CHECK(run.look_after(seconds(1)).empty());
  run.save("checkpoint-10");
  CHECK(told(run.look_after(seconds(1))) == Told{{10, Verdict::kWaiting}});
  CHECK(run.look_after(seconds(28)).empty());  // the first has nothing to be compared with
  CHECK(told(run.look_after(seconds(2))) == Told{{10, Verdict::kComplete}});

  SECTION("all files, five seconds") {
    run.save("checkpoint-20");
    CHECK(told(run.look_after(seconds(1))) == Told{{20, Verdict::kWaiting}});
    CHECK(run.watcher.until_due() <= seconds(5));
    CHECK(run.look_after(seconds(4)).empty());
    CHECK(told(run.look_after(seconds(1))) == Told{{20, Verdict::kComplete}});
  }
  SECTION("the last complete one may have been deleted meanwhile") {
    for (const std::string& name : kNames) run.remove("checkpoint-10/" + name);
    REQUIRE(run.files.remove_directory("/out/checkpoint-10").has_value());
    run.save("checkpoint-20");
    run.look_after(seconds(1));
    CHECK(told(run.look_after(seconds(5))) == Told{{20, Verdict::kComplete}});
  }
  SECTION("a small file has not come") {
    run.save("checkpoint-20", {"config.json", "w.pt", "tokenizer.json"});
    CHECK(told(run.look_after(seconds(1))) == Told{{20, Verdict::kWaiting}});
    CHECK(run.look_after(seconds(28)).empty());
    CHECK(told(run.look_after(seconds(2))) == Told{{20, Verdict::kComplete}});
  }
  SECTION("on a file server times tell nothing") {
    run.files.mount("/out", 8, 0x6969);
    run.watcher.rescan();
    run.look_after(seconds(11));
    run.save("checkpoint-20");
    run.look_after(seconds(1));
    CHECK(run.look_after(seconds(28)).empty());
    CHECK(told(run.look_after(seconds(2))) == Told{{20, Verdict::kComplete}});
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

TEST_CASE("a folder that comes back after the directory was away is no new save") {
  Run run(Layout::kHuggingFace);
  run.look_after(seconds(1));
  run.save("checkpoint-10");
  run.look_after(seconds(1));
  REQUIRE(told(run.look_after(seconds(31))) == Told{{10, Verdict::kComplete}});
  REQUIRE(run.files.rename("/out", "/elsewhere").has_value());
  run.watcher.rescan();
  run.look_after(seconds(11));
  REQUIRE_FALSE(run.watcher.trouble().empty());
  REQUIRE(run.files.rename("/elsewhere", "/out").has_value());
  run.save("checkpoint-20");

  run.watcher.rescan();
  run.look_after(seconds(11));
  CHECK(run.look_after(seconds(28)).empty());
  CHECK(told(run.look_after(seconds(2))) == Told{{20, Verdict::kComplete}});
}
