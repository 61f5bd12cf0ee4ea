// Where a merge writes, and what is there when it fails, is killed or loses its power.
#include "store/checkpoint/merge_staging.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>

#include "store/checkpoint/merge.h"
#include "tests/unit/checkpoint/merge_run.h"

using namespace evalcar;
using namespace evalcar::checkpoint;
using namespace evalcar::checkpoint::testing;

TEST_CASE("nothing is written into checkpoints, nor where a trainer takes it for one") {
  Run run;
  run.files.put_file("/full/x", "mine");
  for (const char* place : {"/run/checkpoint-5", "/run/checkpoint-5/merged",
                            "/run/checkpoint-6/a/b", "/run/checkpoint-5-merged",
                            "/run/checkpoint-best", "/run/checkpoints/5", "/run", "/full"}) {
    INFO(place);
    MergeRequest request = run.request();
    request.output_dir = place;
    const auto before = run.files.tree();

    CHECK(merge(run.files, request).error().code == ErrorCode::kInvalidArgument);
    CHECK(run.files.tree() == before);
  }
}

TEST_CASE("a name that begins with checkpoint is fine where no trainer is") {
  Run run;
  MergeRequest request = run.request();
  request.output_dir = "/elsewhere/checkpoint-5-merged";

  CHECK(merge(run.files, request).has_value());
}

TEST_CASE("too little free space is told before anything is written") {
  Run run;
  run.files.set_free_bytes(1000);

  const auto report = merge(run.files, run.request());

  CHECK(report.error().code == ErrorCode::kIo);
  CHECK(report.error().message.find("--output_dir") != std::string::npos);
  CHECK(plan_merge(run.files, run.request()).error().code == ErrorCode::kIo);
  CHECK(run.files.count("create") == 0);
  CHECK(run.files.tree("/out").empty());
}

TEST_CASE("a merge that is cancelled leaves nothing") {
  Run run;
  const std::atomic<bool> cancelled{true};
  MergeRequest request = run.request();
  request.cancelled = &cancelled;

  CHECK(merge(run.files, request).error().code == ErrorCode::kCancelled);
  CHECK(run.files.tree("/out").empty());
}

TEST_CASE("a result that was being replaced when its merge was killed is put back") {
  const pid_t killed = ::fork();
  if (killed == 0) ::_exit(0);
  ::waitpid(killed, nullptr, 0);
  Run run;
  MergeStaging staging(run.files, "/out/regular");
  const std::string realm = staging.path().substr(staging.path().rfind('-'));
  const std::string left = "/out/.evalcar-merge-regular." + std::to_string(killed) + realm;
  run.files.put_file(left + ".old/model.safetensors", "the last whole result");

  REQUIRE(staging.make().has_value());
  CHECK(run.files.content("/out/regular/model.safetensors") == "the last whole result");
  CHECK_FALSE(run.files.exists(left + ".old"));
}

TEST_CASE("a source that is rewritten while it is read is never published") {
  Run run;
  const MergeRequest request = run.request();
  bool rewritten = false;
  run.files.on_call([&](const test::Call& call) {
    if (rewritten || call.operation != "create") return;
    rewritten = true;
    run.clock.advance(std::chrono::seconds(1));
    run.put(5, {9, 9, 9, 9}, 9);
  });

  CHECK(merge(run.files, request).error().code == ErrorCode::kUnavailable);
  CHECK(rewritten);
  CHECK(run.files.tree("/out").empty());
}

TEST_CASE("whichever call fails, the output is whole or absent and nothing is left beside it") {
  std::size_t failed = 0;
  for (std::size_t n = 1; n < 200; ++n) {
    INFO(n);
    Run run;
    const MergeRequest request = run.request();
    run.files.reset_calls();
    run.files.fail_call(n, EIO);

    const auto report = merge(run.files, request);

    run.files.fail_call(0, 0);
    const auto tree = run.files.tree("/out");
    CHECK((tree.empty() || tree == kMergedTree));
    if (report.has_value()) CHECK(tree == kMergedTree);
    failed += report.has_value() ? 0 : 1;
    if (run.files.calls().size() < n) break;
  }
  CHECK(failed > 20);
}

TEST_CASE(
    "whichever call of a replacement fails, the old output or the new one is whole in place") {
  std::size_t failed = 0;
  for (std::size_t n = 1; n < 400; ++n) {
    INFO(n);
    Run run;
    REQUIRE(merge(run.files, run.request()).has_value());
    MergeRequest again = run.request({6});
    again.replace_output = true;
    run.files.reset_calls();
    run.files.fail_call(n, EIO);

    const auto report = merge(run.files, again);

    run.files.fail_call(0, 0);
    REQUIRE(run.files.exists("/out/merged/model.safetensors"));
    const auto a = run.merged("a");
    const bool is_new = a == bytes_of<float>({3, 4, 5, 8});
    CHECK((is_new || a == bytes_of<float>({1, 2, 3, 4})));
    if (report.has_value()) CHECK(is_new);
    failed += report.has_value() ? 0 : 1;
    if (run.files.calls().size() < n) break;
    // What a failed removal left is gone with the next one.
    REQUIRE(merge(run.files, again).has_value());
    CHECK(run.files.tree("/out") == kMergedTree);
  }
  CHECK(failed > 20);
}

TEST_CASE("a replacement killed at any call loses neither output, and the next one cleans up") {
  for (std::size_t n = 1; n < 400; ++n) {
    INFO(n);
    Run run;
    REQUIRE(merge(run.files, run.request()).has_value());
    MergeRequest again = run.request({6});
    again.replace_output = true;
    run.files.reset_calls();
    run.files.die_at_call(n);

    const bool done = merge(run.files, again).has_value();

    run.files.die_at_call(0);
    if (done && run.files.calls().size() < n) break;
    bool whole = run.files.exists("/out/merged/model.safetensors");
    for (const std::string& path : run.files.tree("/out"))
      whole = whole || path.ends_with(".old/model.safetensors");
    CHECK(whole);
    REQUIRE(merge(run.files, again).has_value());
    CHECK(run.files.tree("/out") == kMergedTree);
    CHECK(run.merged("a") == bytes_of<float>({3, 4, 5, 8}));
  }
}

TEST_CASE(
    "a process killed at any call leaves no part under the target's name, and the next one cleans "
    "up") {
  for (std::size_t n = 1; n < 200; ++n) {
    INFO(n);
    Run run;
    const MergeRequest request = run.request();
    run.files.reset_calls();
    run.files.die_at_call(n);

    const bool done = merge(run.files, request).has_value();

    run.files.die_at_call(0);
    if (run.files.exists("/out/merged")) {
      CHECK(run.merged("a") == bytes_of<float>({1, 2, 3, 4}));
      continue;
    }
    CHECK_FALSE(done);
    REQUIRE(merge(run.files, request).has_value());
    CHECK(run.files.tree("/out") == kMergedTree);
  }
}

TEST_CASE(
    "in a mount point files move one by one, config.json last, and a kill leaves no half model") {
  const auto mount = [](Run& run) {
    run.files.put_file(Run::folder(5) + "/qformer_tokenizer/vocab.txt", "of a processor's part");
    run.files.put_directory("/out/merged");
    run.files.put_file("/proc/self/mountinfo", "30 1 8:1 / /out/merged rw - ext4 /dev/sda1 rw\n");
  };
  std::vector<std::string> whole = kMergedTree;
  whole.insert(whole.end() - 1,
               {"merged/qformer_tokenizer/", "merged/qformer_tokenizer/vocab.txt"});
  std::size_t died = 0;
  for (const bool dies : {false, true}) {
    for (std::size_t n = 1; n < 400; ++n) {
      INFO(n);
      Run run;
      mount(run);
      const MergeRequest request = run.request();
      run.files.reset_calls();
      dies ? run.files.die_at_call(n) : run.files.fail_call(n, EIO);

      const auto report = merge(run.files, request);
      const std::size_t calls = run.files.calls().size();

      run.files.die_at_call(0);
      run.files.fail_call(0, 0);
      REQUIRE(run.files.exists("/out/merged"));
      const bool looks_whole = run.files.exists("/out/merged/config.json");
      if (looks_whole) CHECK(run.merged("a") == bytes_of<float>({1, 2, 3, 4}));
      if (!dies && !report.has_value() && !looks_whole) {
        CHECK(run.files.tree("/out") == std::vector<std::string>{"merged/"});
      }
      if (report.has_value()) CHECK(run.files.tree("/out") == whole);
      if (dies && !report.has_value()) {
        ++died;
        const auto again = merge(run.files, request);
        // Killed at the very end, when all was there: that is not ours to replace.
        CHECK((again.has_value() || looks_whole));
        if (again.has_value()) CHECK(run.files.tree("/out") == whole);
      }
      if (calls < n) break;
    }
  }
  CHECK(died > 20);
}

TEST_CASE("in a mount point the weights' names are on the disk before config.json is there") {
  Run run;
  run.files.put_directory("/out/merged");
  run.files.put_file("/proc/self/mountinfo", "30 1 8:1 / /out/merged rw - ext4 /dev/sda1 rw\n");
  run.files.reset_calls();
  REQUIRE(merge(run.files, run.request()).has_value());

  // What a power cut leaves of names that were not synced, and in which order, nobody knows.
  bool weights_moved = false;
  bool synced = false;
  bool config_moved = false;
  for (const auto& call : run.files.calls()) {
    if (call.operation == "sync_directory" && call.path == "/out/merged") synced = weights_moved;
    if (call.operation != "rename") continue;
    if (call.path.ends_with("/model.safetensors")) weights_moved = true;
    if (!call.path.ends_with("/config.json")) continue;
    CHECK(synced);
    config_moved = true;
  }
  CHECK(config_moved);
}

TEST_CASE("an empty folder is filled where nothing can be made beside it") {
  Run run;
  run.files.put_directory("/out/merged");
  const MergeRequest request = run.request();
  run.files.fail_operation("make_directory", EACCES);

  REQUIRE(merge(run.files, request).has_value());

  CHECK(run.files.tree("/out") == kMergedTree);
}

TEST_CASE("what somebody else has in a mount point is never taken for ours") {
  Run run;
  run.files.put_file("/out/merged/mine", "x");
  run.files.put_file("/proc/self/mountinfo", "30 1 8:1 / /out/merged rw - ext4 /dev/sda1 rw\n");

  CHECK(merge(run.files, run.request()).error().code == ErrorCode::kInvalidArgument);
  CHECK(run.files.content("/out/merged/mine") == "x");
}

TEST_CASE("after a power cut a merge that was reported is there, whole") {
  for (const auto names : {test::UnsyncedNames::kDropped, test::UnsyncedNames::kKept}) {
    Run run;
    REQUIRE(merge(run.files, run.request()).has_value());
    // the folder around the target was made by the merge too
    run.files.power_cut(names);
    REQUIRE(run.files.exists("/out/merged/model.safetensors"));
    CHECK(run.merged("a") == bytes_of<float>({1, 2, 3, 4}));
  }
}

TEST_CASE("our own output is replaced, anybody else's is not") {
  Run run;
  REQUIRE(merge(run.files, run.request()).has_value());
  MergeRequest again = run.request({6});

  CHECK(merge(run.files, again).error().code == ErrorCode::kInvalidArgument);
  again.replace_output = true;
  REQUIRE(merge(run.files, again).has_value());

  CHECK(run.merged("a") == bytes_of<float>({3, 4, 5, 8}));
  CHECK(run.files.tree("/out") == kMergedTree);
}
