#include "agent/run/checkpoint_link.h"

#include <catch2/catch_test_macros.hpp>

#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;

namespace {

constexpr const char* kPattern = "checkpoint-{step}";

struct Run {
  test::FakeClock clock;
  test::MemoryFileSystem files{clock};
  run::ResultsPlace results{"/out/_evalcar/results/5", "../_evalcar/results/5/"};

  Run() { make("/out/checkpoint-5"); }
  void make(const std::string& folder) {
    REQUIRE(make_directories(files, folder).has_value());
    REQUIRE(files.set_mtime(folder, 1'000'000'000).has_value());
  }
  void link(config::LinkInCheckpoint mode, checkpoint::Layout layout) {
    watch::Sighting seen;
    seen.step = 5;
    seen.folder = "checkpoint-5";
    seen.path = "/out/checkpoint-5";
    seen.layout = layout;
    run::link_in_checkpoint(files, mode, seen, kPattern, results);
  }
  bool linked() { return files.info("/out/checkpoint-5/eval").has_value(); }
};

}  // namespace

using config::LinkInCheckpoint;
using enum checkpoint::Layout;

TEST_CASE("the newest checkpoint gets its link, and its time stays") {
  Run run;

  run.link(LinkInCheckpoint::kAuto, kLmmsEngineFsdp2);

  CHECK(run.files.read_link("/out/checkpoint-5/eval").value() == "../_evalcar/results/5/");
  CHECK(run.files.info("/out/checkpoint-5")->mtime_ns == 1'000'000'000);
}

TEST_CASE("a checkpoint that another one was begun after gets no link: it may be deleted now") {
  Run run;
  run.make("/out/checkpoint-10");

  run.link(LinkInCheckpoint::kAuto, kLmmsEngineFsdp2);

  CHECK_FALSE(run.linked());
  CHECK(run.files.info("/out/checkpoint-5")->mtime_ns == 1'000'000'000);
}

TEST_CASE("what is older, or no checkpoint, does not keep the link away") {
  Run run;
  run.make("/out/checkpoint-4");
  run.make("/out/checkpoint-10-merged");

  run.link(LinkInCheckpoint::kAuto, kLmmsEngineFsdp2);

  CHECK(run.linked());
}

TEST_CASE("a trainer that deletes by the folders' times gets a link only where it was asked for") {
  Run run;

  run.link(LinkInCheckpoint::kNever, kLmmsEngineFsdp2);
  run.link(LinkInCheckpoint::kAuto, kHuggingFace);
  CHECK_FALSE(run.linked());
  run.link(LinkInCheckpoint::kAlways, kHuggingFace);
  CHECK(run.linked());
}
