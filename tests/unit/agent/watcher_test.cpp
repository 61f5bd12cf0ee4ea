#include "agent/watch/watcher.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <utility>

#include "tests/unit/agent/watch_bench.h"

using namespace evalcar;
using namespace evalcar::watch;
using namespace evalcar::testing;
using std::chrono::milliseconds;

TEST_CASE("a checkpoint that grows is told as waiting, then once as complete") {
  Bench bench;
  bench.put("checkpoint-5/config.json", "{}");
  CHECK(bench.regular(bench.look()) == Told{{5, Verdict::kWaiting}});
  CHECK_FALSE(bench.watcher.settled());
  bench.put("checkpoint-5/w.pt", "wh");
  CHECK(bench.regular(bench.look()) == Told{{5, Verdict::kWaiting}});

  bench.put("checkpoint-5/w.pt", "whole");
  const auto seen = bench.look();

  CHECK(bench.regular(seen) == Told{{5, Verdict::kComplete}});
  CHECK(seen[0].files.size() == 2);
  CHECK(seen[0].fingerprint.size() == 32);
  CHECK(bench.watcher.settled());
  CHECK(bench.look().empty());
}

TEST_CASE("a save that ends between the list of files and the look for its mark is listed anew") {
  Bench bench;
  bool writing = true;
  const auto inspect_while_written = [&](const FileSystem& files, const std::string& dir) {
    auto report = inspect(files, dir);
    report->layout = Layout::kHuggingFace;
    for (KindState& state : report->kinds) {
      if (files.info(dir + "/tokenizer.json").has_value() && !state.files.empty()) {
        state.files.emplace_back("tokenizer.json");
      }
    }
    if (std::exchange(writing, false)) {  // after it was listed
      bench.put("checkpoint-5/tokenizer.json", "{}");
      bench.put("checkpoint-5/trainer_state.json", "{}");
    }
    return report;
  };
  Watcher watcher(bench.files, bench.clock, bench.notifier, {.output_dir = "/out"},
                  inspect_while_written);
  bench.put_checkpoint("checkpoint-5");

  CHECK(bench.regular(watcher.step()) == Told{{5, Verdict::kWaiting}});

  bench.clock.advance(std::chrono::milliseconds(100));
  const auto seen = watcher.step();
  CHECK(bench.regular(seen) == Told{{5, Verdict::kComplete}});
  CHECK(seen[0].files.size() == 3);
}

namespace {

constexpr std::int64_t kHour = std::int64_t{3600} * 1'000'000'000;

/// The toy layout as the Hugging Face Trainer's.
struct HuggingFace : Bench {
  explicit HuggingFace(std::uint64_t file_system) {
    files.put_directory("/out");
    files.mount("/out", 8, file_system);
  }
  Watcher watcher{files,
                  clock,
                  notifier,
                  {.output_dir = "/out"},
                  [](const FileSystem& all, const std::string& dir) {
                    auto report = inspect(all, dir);
                    if (report.has_value()) report->layout = Layout::kHuggingFace;
                    return report;
                  }};

  /// As after cp -a, rsync -a, or mv out of another file system.
  void set_back(const std::string& name, std::int64_t by_ns) {
    const std::string path = "/out/" + name;
    REQUIRE(files.set_mtime(path, files.info(path)->mtime_ns - by_ns).has_value());
  }
  Told see(milliseconds after = milliseconds(100)) {
    clock.advance(after);
    return regular(watcher.step());
  }
};

constexpr std::uint64_t kExt4 = 0xef53;
constexpr std::uint64_t kNfs = 0x6969;

}  // namespace

TEST_CASE("a mark that a copy brought with its time does not stand in for rest") {
  const auto place = GENERATE(kExt4, kNfs);
  HuggingFace bench(place);
  bench.put_checkpoint("checkpoint-5");
  bench.put("checkpoint-5/trainer_state.json", "{}");
  for (const char* name : {"w.pt", "config.json", "trainer_state.json"}) {
    bench.set_back(std::string("checkpoint-5/") + name, kHour);
  }

  CHECK(bench.see() == Told{{5, Verdict::kWaiting}});
  bench.put("checkpoint-5/generation_config.json", "{}");  // its copy goes on
  CHECK(bench.see().empty());
  CHECK(bench.see(seconds(31)) == Told{{5, Verdict::kComplete}});
}

TEST_CASE("a mark of the trainer's own is taken at once, wherever its times come from") {
  const auto place = GENERATE(kExt4, kNfs);
  // Written under another name and renamed, or its mode set, half a second later; a client's clock.
  const std::int64_t later_ns = GENERATE(0, 500'000'000);
  HuggingFace bench(place);
  bench.put_checkpoint("checkpoint-5");
  bench.put("checkpoint-5/trainer_state.json", "{}");
  bench.set_back("checkpoint-5/trainer_state.json", later_ns);
  CHECK(bench.see() == Told{{5, Verdict::kComplete}});
}

TEST_CASE("a newer checkpoint was written later than weights that kept their time, as all were") {
  for (const bool copied : {false, true}) {
    INFO(copied);
    HuggingFace bench(kExt4);
    bench.put_checkpoint("checkpoint-5");
    if (copied) bench.set_back("checkpoint-5/w.pt", kHour);
    bench.put_checkpoint("checkpoint-10");
    bench.put("checkpoint-10/trainer_state.json", "{}");

    const Verdict of_5 = copied ? Verdict::kWaiting : Verdict::kComplete;
    CHECK(bench.see() == Told{{10, Verdict::kComplete}, {5, of_5}});
  }
}

TEST_CASE("checkpoints one folder down are told of, and no more once there are some in the root") {
  Bench bench;
  bench.put("logs/events", "");
  bench.put("_evalcar/checkpoint-5/config.json", "{}");
  CHECK(bench.look().empty());
  CHECK(bench.watcher.elsewhere().empty());

  bench.put_checkpoint("run-0/checkpoint-5");
  bench.put_checkpoint("run-1/checkpoint-5");
  bench.clock.advance(seconds(70));
  CHECK(bench.look().empty());

  CHECK(
      bench.watcher.elsewhere() ==
      "/out: holds no checkpoint-{step}, but /out/run-1 does (and 1 more beside it): point evalcar "
      "at that folder: evalcar run /out/run-1");
  bench.put_checkpoint("checkpoint-5");
  bench.clock.advance(seconds(70));
  CHECK_FALSE(bench.look().empty());
  CHECK(bench.watcher.elsewhere().empty());
}

TEST_CASE("a model in the output directory itself is told of") {
  Bench bench;
  bench.put("model.safetensors", "whole");
  bench.put("deep/run-0/checkpoint-5/config.json", "{}");  // no look goes so deep
  CHECK(bench.look().empty());

  CHECK(
      bench.watcher.elsewhere() ==
      "/out: holds no checkpoint-{step}, but a model itself (model.safetensors): evalcar eval /out "
      "measures that");
}

TEST_CASE(
    "of very many folders some are looked into for checkpoints, and none of very many names") {
  Bench bench;
  for (int i = 1000; i < 1900; ++i) bench.files.put_directory("/out/" + std::to_string(i));
  bench.put_checkpoint("zz/checkpoint-5");
  bench.files.reset_calls();

  CHECK(bench.look().empty());

  CHECK(bench.watcher.elsewhere().empty());
  CHECK(bench.files.count("list") < 220);
  for (int i = 0; i < 200; ++i) bench.files.put_file("/out/file-" + std::to_string(i), "");
  bench.files.reset_calls();
  bench.clock.advance(seconds(70));
  CHECK(bench.look().empty());
  CHECK(bench.files.count("list") < 5);
}

TEST_CASE("only canonical whole numbers count, in the order of numbers") {
  Bench bench;
  for (const char* const name :
       {"checkpoint-1000", "checkpoint-999", "checkpoint-0500", "checkpoint--5", "checkpoint-5e2",
        "checkpoint-99999999999999999999", "checkpoint-500 (copy)", "checkpoint-500-merged",
        "tmp-checkpoint-7", "checkpoint-", "checkpoint-\xff"}) {
    bench.put_checkpoint(name);
  }

  CHECK(bench.regular(bench.look()) == Told{{1000, Verdict::kComplete}, {999, Verdict::kComplete}});
}

TEST_CASE("without any hint a poll finds everything") {
  Bench bench;
  bench.notifier.works = false;
  bench.files.put_directory("/out");
  CHECK(bench.look().empty());
  bench.put_checkpoint("checkpoint-5");
  bench.notifier.hints = {};
  CHECK(bench.look().empty());

  bench.clock.advance(seconds(10));

  CHECK(bench.regular(bench.watcher.step()) == Told{{5, Verdict::kComplete}});
}

TEST_CASE("an overflow of hints leads to a look at everything") {
  Bench bench;
  bench.files.put_directory("/out");
  (void)bench.look();
  bench.put_checkpoint("checkpoint-5");
  bench.notifier.hints = {.folders = {}, .overflowed = true};

  CHECK(bench.regular(bench.look()) == Told{{5, Verdict::kComplete}});
}

TEST_CASE("an output directory that appears later is picked up") {
  Bench bench;
  CHECK(bench.look().empty());
  CHECK_FALSE(bench.watcher.trouble().empty());
  CHECK(bench.notifier.watched.contains("/"));

  bench.files.put_directory("/out");
  bench.notifier.hints.folders.insert("/");
  CHECK(bench.look().empty());
  CHECK(bench.watcher.trouble().empty());
  CHECK_FALSE(bench.notifier.watched.contains("/"));  // what else happens there is not our business
  bench.put_checkpoint("checkpoint-5");
  CHECK(bench.regular(bench.look()) == Told{{5, Verdict::kComplete}});
}

TEST_CASE("a removed folder is told as gone, a removed root tells nothing") {
  Bench bench;
  bench.put_checkpoint("checkpoint-5");
  bench.put_checkpoint("checkpoint-6");
  (void)bench.look();

  REQUIRE(remove_tree(bench.files, "/out/checkpoint-5").has_value());
  bench.notifier.hints.folders.insert("/out");
  CHECK(bench.regular(bench.look()) == Told{{5, Verdict::kGone}});

  REQUIRE(remove_tree(bench.files, "/out").has_value());
  bench.notifier.hints.folders.insert("/out");
  CHECK(bench.look().empty());
}

TEST_CASE("a folder that goes between its listing and the look is told as come and gone, once") {
  Bench bench;
  bench.put_checkpoint("checkpoint-5");
  const auto inspect_too_late = [&](const FileSystem& files, const std::string& dir) {
    (void)remove_tree(bench.files, dir);
    return inspect(files, dir);
  };
  Watcher watcher(bench.files, bench.clock, bench.notifier, {.output_dir = "/out"},
                  inspect_too_late);

  std::vector<Sighting> told;
  for (int i = 0; i < 5; ++i) {
    for (Sighting& seen : watcher.step()) told.push_back(std::move(seen));
    bench.clock.advance(seconds(10));
  }

  REQUIRE(bench.regular(told) == Told{{5, Verdict::kWaiting}, {5, Verdict::kGone}});
  CHECK(told[0].reason == "it came and went before it could be looked at");
  CHECK(told.size() == 2);
}

TEST_CASE("a checkpoint rewritten in place is complete again with another fingerprint") {
  Bench bench;
  bench.put_checkpoint("checkpoint-5");
  const auto first = bench.look();

  bench.put("checkpoint-5/w.pt", "who");  // opened with O_TRUNC, being written again
  CHECK(bench.regular(bench.look()) == Told{{5, Verdict::kWaiting}});
  bench.put("checkpoint-5/w.pt", "whole again");
  (void)bench.look();
  CHECK(bench.look().empty());  // config.json follows
  bench.put("checkpoint-5/config.json", "{ }");
  const auto second = bench.look();

  REQUIRE(bench.regular(second) == Told{{5, Verdict::kComplete}});
  CHECK(second[0].fingerprint != first[0].fingerprint);
}

TEST_CASE("what is complete beside rewritten weights is told again, as of their generation") {
  Bench bench;
  const auto inspect_apart = [](const FileSystem& files, const std::string& dir) {
    auto report = inspect(files, dir);
    for (KindState& state : report->kinds) {
      if (state.kind == WeightsKind::kEma) state.files = {"ema/w.pt"};
    }
    return report;
  };
  Watcher watcher(bench.files, bench.clock, bench.notifier, {.output_dir = "/out"}, inspect_apart);
  bench.put_checkpoint("checkpoint-5");
  bench.put("checkpoint-5/ema/w.pt");
  bench.clock.advance(seconds(1));
  REQUIRE(watcher.step().size() == 2);

  bench.put("checkpoint-5/w.pt", "whole again");
  bench.put("checkpoint-5/config.json", "{ }");
  bench.clock.advance(seconds(1));
  const auto seen = watcher.step();
  REQUIRE(seen.size() == 2);
  CHECK(seen[0].kind == WeightsKind::kRegular);
  CHECK(seen[0].rewritten);
  CHECK(seen[1].kind == WeightsKind::kEma);
  CHECK(seen[1].verdict == Verdict::kComplete);
  CHECK_FALSE(seen[1].rewritten);
}

TEST_CASE("the watcher is due when the first of several folders has rested for its time") {
  Bench bench;
  Watcher watcher(bench.files, bench.clock, bench.notifier,
                  {.output_dir = "/out", .poll_interval = seconds(600)}, inspect);
  const auto look = [&](milliseconds after) {
    bench.clock.advance(after);
    return bench.regular(watcher.step());
  };
  const auto due = [&] {
    bench.clock.advance(milliseconds(50));  // hints are wanted again
    return watcher.until_due();
  };
  bench.put("checkpoint-5/config.json", "{}");
  CHECK(look(seconds(1)) == Told{{5, Verdict::kWaiting}});
  bench.put("checkpoint-10/config.json", "{}");
  CHECK(look(seconds(19)) == Told{{10, Verdict::kWaiting}});

  CHECK(due() == milliseconds(7'450));  // of step 10: a quarter of 30 s
  CHECK(look(milliseconds(7'450)).empty());
  CHECK(due() == milliseconds(2'450));
  CHECK(look(milliseconds(2'450)) == Told{{5, Verdict::kTorn}});
  CHECK(due() == milliseconds(19'950));
  CHECK(look(milliseconds(19'950)) == Told{{10, Verdict::kTorn}});
  CHECK(due() > seconds(500));
}

TEST_CASE("torn weights are told as torn after the settle time, and complete when finished later") {
  Bench bench;
  bench.put("checkpoint-5/config.json", "{}");
  bench.put("checkpoint-5/w.pt", "wh");
  (void)bench.look();
  CHECK(bench.watcher.until_due() <= seconds(10));

  bench.clock.advance(seconds(30));
  const auto torn = bench.watcher.step();
  REQUIRE(bench.regular(torn) == Told{{5, Verdict::kTorn}});
  CHECK(torn[0].reason == "w.pt is short");
  CHECK(bench.watcher.settled());

  bench.put("checkpoint-5/w.pt");
  CHECK(bench.regular(bench.look()) == Told{{5, Verdict::kComplete}});
}

TEST_CASE("a folder without a known layout waits, then is told as unreadable") {
  Bench bench;
  bench.put("checkpoint-5/readme.txt", "hi");
  CHECK(bench.regular(bench.look()) == Told{{5, Verdict::kWaiting}});

  bench.clock.advance(seconds(30));
  CHECK(bench.regular(bench.watcher.step()) == Told{{5, Verdict::kUnreadable}});
}

TEST_CASE("what a newer checkpoint has overtaken is told so, and complete when its rest comes") {
  Bench bench;
  bench.put_checkpoint("checkpoint-5");
  bench.put("checkpoint-5/w.pt", "wh");
  CHECK(bench.regular(bench.look()) == Told{{5, Verdict::kWaiting}});
  bench.put_checkpoint("checkpoint-10");
  CHECK(bench.regular(bench.look()) == Told{{10, Verdict::kComplete}});

  bench.clock.advance(seconds(30));
  const auto seen = bench.watcher.step();

  REQUIRE(bench.regular(seen) == Told{{5, Verdict::kOvertaken}});
  CHECK(seen[0].reason.ends_with("w.pt is short"));
  CHECK(bench.watcher.settled());
  bench.put("checkpoint-5/w.pt");
  CHECK(bench.regular(bench.look()) == Told{{5, Verdict::kComplete}});
}

TEST_CASE(
    "a higher step of an earlier training has overtaken no folder that is written beside it") {
  Bench bench;
  bench.put_checkpoint("checkpoint-1000");
  CHECK(bench.regular(bench.look()) == Told{{1000, Verdict::kComplete}});
  bench.put("checkpoint-100/config.json", "{}");
  bench.put("checkpoint-100/w.pt", "wh");
  bench.files.put_directory("/out/checkpoint-100/ema");
  const auto begun = bench.look();
  CHECK(bench.regular(begun) == Told{{100, Verdict::kWaiting}});
  CHECK(
      std::ranges::none_of(begun, [](const auto& s) { return s.verdict == Verdict::kNotStarted; }));

  bench.clock.advance(seconds(40));
  CHECK(bench.regular(bench.look()) == Told{{100, Verdict::kTorn}});

  bench.put_checkpoint("checkpoint-200");
  CHECK(bench.regular(bench.look()) == Told{{200, Verdict::kComplete}, {100, Verdict::kOvertaken}});
}

TEST_CASE("a folder that may not be read is torn, not unreadable, and complete when it may") {
  Bench bench;
  bench.put_checkpoint("checkpoint-5");
  bool forbidden = true;
  Watcher watcher(bench.files, bench.clock, bench.notifier, {.output_dir = "/out"},
                  [&](const FileSystem& files, const std::string& dir) {
                    if (forbidden) return Result<LayoutReport>(errno_error("list", dir, 13));
                    return inspect(files, dir);
                  });
  CHECK(bench.regular(watcher.step()) == Told{{5, Verdict::kWaiting}});

  bench.clock.advance(seconds(30));
  const auto seen = watcher.step();
  CHECK(bench.regular(seen) == Told{{5, Verdict::kTorn}});
  CHECK(seen[0].reason ==
        "list: /out/checkpoint-5: Permission denied; run evalcar as the user that trains");
  forbidden = false;
  bench.clock.advance(seconds(10));
  CHECK(bench.regular(watcher.step()) == Told{{5, Verdict::kComplete}});
}

TEST_CASE("a link counts where it leads to a folder of its own in the output directory") {
  Bench bench;
  bench.put_checkpoint("kept/five");
  bench.put_checkpoint("checkpoint-10");
  REQUIRE(bench.files.symbolic_link("kept/five", "/out/checkpoint-5").has_value());
  REQUIRE(bench.files.symbolic_link("checkpoint-10", "/out/checkpoint-11").has_value());

  CHECK(bench.regular(bench.look()) == Told{{10, Verdict::kComplete}, {5, Verdict::kComplete}});
}

TEST_CASE("a link that leads out is refused, and what takes its place is looked at") {
  Bench bench;
  bench.files.put_file("/elsewhere/config.json", "{}");
  bench.files.put_file("/elsewhere/w.pt", "whole");
  bench.files.put_directory("/out");
  REQUIRE(bench.files.symbolic_link("/elsewhere", "/out/checkpoint-5").has_value());

  const auto seen = bench.look();
  REQUIRE(bench.regular(seen) == Told{{5, Verdict::kUnreadable}});
  CHECK(seen[0].reason.find("leads out of the output directory") != std::string::npos);

  REQUIRE(bench.files.remove_file("/out/checkpoint-5").has_value());
  bench.put_checkpoint("checkpoint-5");
  CHECK(bench.regular(bench.look()) == Told{{5, Verdict::kComplete}});
}

TEST_CASE("nothing is concluded from a root that cannot be read") {
  Bench bench;
  bench.put_checkpoint("checkpoint-5");
  REQUIRE(bench.regular(bench.look()).size() == 1);
  bench.files.fail_operation("list", 5);
  bench.watcher.rescan();

  CHECK(bench.look().empty());
  CHECK_FALSE(bench.watcher.trouble().empty());
  CHECK_FALSE(bench.watcher.mode().notices);

  bench.watcher.rescan();
  CHECK(bench.look().empty());  // it is there, as it was
  CHECK(bench.watcher.trouble().empty());
}

TEST_CASE("how a directory is watched depends on its file system and on the kernel's limits") {
  Bench bench;
  bench.files.put_directory("/out");
  bench.files.mount("/out", 7, 0xEF53);
  (void)bench.look();
  CHECK(bench.watcher.mode().file_system == "ext4");
  CHECK(bench.watcher.mode().notices);

  bench.notifier.why_not = "fs.inotify.max_user_watches is reached";
  CHECK_FALSE(bench.watcher.mode().notices);
  CHECK(bench.watcher.mode().reason == bench.notifier.why_not);
  bench.notifier.why_not.clear();

  bench.files.mount("/out", 8, 0x6969);
  bench.watcher.rescan();
  (void)bench.look();
  CHECK(bench.watcher.mode().file_system == "NFS");
  CHECK_FALSE(bench.watcher.mode().notices);
}

TEST_CASE("an empty EMA folder waits for the writer, and EMA that comes later is still found") {
  Bench bench;
  bench.files.put_directory("/out/checkpoint-5/ema");
  bench.put_checkpoint("checkpoint-5");
  auto seen = bench.look();
  REQUIRE(seen.size() == 2);
  CHECK(seen[1].kind == WeightsKind::kEma);
  CHECK(seen[1].verdict == Verdict::kWaiting);

  bench.put("checkpoint-5/done");
  seen = bench.look();
  REQUIRE(seen.size() == 1);
  CHECK(seen[0].verdict == Verdict::kNotStarted);

  bench.put("checkpoint-5/ema/w.pt");
  seen = bench.look();
  REQUIRE(seen.size() == 1);
  CHECK(seen[0].kind == WeightsKind::kEma);
  CHECK(seen[0].verdict == Verdict::kComplete);
}

TEST_CASE(
    "EMA of which a delete has taken the files waits for the end, and has not failed to start") {
  const bool folder_too = GENERATE(false, true);
  const std::string ema = "pytorch_ema_model_fsdp_0";
  Bench bench;
  const auto inspect_ema = [&](const FileSystem& files, const std::string& dir) {
    auto report = inspect(files, dir);
    KindState& state = report->kinds[1];
    const bool held = files.info(dir + "/" + ema + "/rank_0.pt").has_value();
    const bool folder = files.info(dir + "/" + ema).has_value();
    state.completeness = held     ? Completeness::kIncomplete
                         : folder ? Completeness::kPending
                                  : Completeness::kAbsent;
    state.reason = "rank_1.pt is not there";
    return report;
  };
  Watcher watcher(bench.files, bench.clock, bench.notifier, {.output_dir = "/out"}, inspect_ema);
  const auto told_of_ema = [&] {
    bench.clock.advance(seconds(1));
    std::vector<Verdict> verdicts;
    for (const Sighting& seen : watcher.step()) {
      if (seen.step == 5 && seen.kind == WeightsKind::kEma) verdicts.push_back(seen.verdict);
    }
    return verdicts;
  };
  bench.put("checkpoint-5/config.json", "{}");
  bench.put("checkpoint-5/" + ema + "/rank_0.pt");
  CHECK(told_of_ema() == std::vector{Verdict::kWaiting});

  REQUIRE(bench.files.remove_file("/out/checkpoint-5/" + ema + "/rank_0.pt").has_value());
  if (folder_too) REQUIRE(bench.files.remove_directory("/out/checkpoint-5/" + ema).has_value());
  bench.put_checkpoint("checkpoint-6");  // a newer one is complete
  watcher.rescan();
  CHECK(told_of_ema() == std::vector{Verdict::kWaiting});
  REQUIRE(remove_tree(bench.files, "/out/checkpoint-5").has_value());
  watcher.rescan();
  CHECK(told_of_ema() == std::vector{Verdict::kGone});
}

TEST_CASE("a storm of hints causes at most one look in the shortest pause") {
  Bench bench;
  bench.put_checkpoint("checkpoint-5");
  (void)bench.look();
  bench.files.reset_calls();

  for (int i = 0; i < 1000; ++i) {
    bench.notifier.hints.folders.insert("/out");
    (void)bench.watcher.step();
  }

  CHECK(bench.files.count("list") <= 1);
}

TEST_CASE(
    "a look that waited for a processor is followed by the next one soon, a dear one is not") {
  for (const bool preempted : {true, false}) {
    Bench bench;
    bench.files.mount("/out", 8, 0xef53);
    const auto slowly = [&](const FileSystem& files, const std::string& dir) {
      const std::chrono::milliseconds took(300);
      preempted ? bench.clock.preempt(took) : bench.clock.advance(took);
      return inspect(files, dir);
    };
    Watcher watcher(bench.files, bench.clock, bench.notifier, {.output_dir = "/out"}, slowly);
    bench.put_checkpoint("checkpoint-5");
    (void)watcher.step();
    bench.notifier.hints.folders.insert("/out");
    (void)watcher.step();

    // After 0.3 s it looked again at once; else 2 s, the longest pause, began with the look.
    CHECK(watcher.until_due() == std::chrono::milliseconds(preempted ? 50 : 1700));
  }
}

TEST_CASE("looking creates, changes and keeps nothing") {
  Bench bench;
  bench.put_checkpoint("checkpoint-5");
  bench.files.reset_calls();
  (void)bench.look();
  bench.clock.advance(seconds(30));
  (void)bench.watcher.step();

  for (const auto& call : bench.files.calls()) {
    CAPTURE(call.operation, call.path);
    CHECK((call.operation == "list" || call.operation == "info" ||
           call.operation == "info_followed" || call.operation == "open_readable" ||
           call.operation == "read_at" || call.operation == "fstat" ||
           call.operation == "file_system_type"));
  }
}

TEST_CASE(
    "a look at many folders that takes long is cut into steps, newest first, each told once") {
  Bench bench;
  Watcher watcher(bench.files, bench.clock, bench.notifier, {.output_dir = "/out"},
                  [&bench](const FileSystem& files, const std::string& dir) {
                    bench.clock.advance(std::chrono::milliseconds(100));
                    return inspect(files, dir);
                  });
  for (int step = 1; step <= 10; ++step) {
    bench.put_checkpoint("checkpoint-" + std::to_string(step));
  }
  bench.clock.advance(seconds(1));

  Told told;
  int steps = 0;
  for (; !watcher.looked() && steps < 20; ++steps) {
    CHECK(watcher.until_due() == seconds(0));
    CHECK_FALSE(watcher.settled());
    const Told more = bench.regular(watcher.step());
    CHECK(more.size() <= 3);
    told.insert(told.end(), more.begin(), more.end());
  }

  CHECK(steps == 4);
  CHECK(watcher.settled());
  REQUIRE(told.size() == 10);
  for (std::size_t i = 0; i < told.size(); ++i) {
    CHECK(told[i] == std::pair(10 - static_cast<std::int64_t>(i), Verdict::kComplete));
  }
  CHECK(watcher.step().empty());
}
