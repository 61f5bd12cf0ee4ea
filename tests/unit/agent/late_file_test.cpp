#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdint>

#include "agent/watch/watcher.h"
#include "tests/unit/agent/watch_bench.h"

using namespace evalcar;
using namespace evalcar::watch;
using namespace evalcar::testing;

namespace {

constexpr std::uint64_t kExt4 = 0xef53;
constexpr std::uint64_t kNfs = 0x6969;

/// The toy layout, whose evaluation reads a chat template where there is one.
Result<LayoutReport> inspect_with_template(const FileSystem& files, const std::string& dir) {
  auto report = inspect(files, dir);
  if (!report.has_value()) return report;
  std::erase_if(report->kinds, [](const KindState& state) {  // as real layouts tell none
    return state.completeness == Completeness::kAbsent;
  });
  if (!files.info(dir + "/chat_template.jinja").has_value()) return report;
  for (KindState& state : report->kinds) {
    if (!state.files.empty()) state.files.emplace_back("chat_template.jinja");
  }
  return report;
}

struct Late : Bench {
  int looks = 0;  ///< into a folder
  Watcher watcher{files,
                  clock,
                  notifier,
                  {.output_dir = "/out"},
                  [this](const FileSystem& all, const std::string& dir) {
                    ++looks;
                    return inspect_with_template(all, dir);
                  }};

  explicit Late(std::uint64_t type_magic = kNfs) {
    files.put_directory("/out");
    files.mount("/out", 7, type_magic);
  }

  std::size_t listings() const {
    const auto calls = files.calls();
    return static_cast<std::size_t>(std::ranges::count_if(calls, [](const test::Call& call) {
      return call.operation == "list" && call.path == "/out/checkpoint-5";
    }));
  }

  /// What polls of the next minute tell, without any hint.
  std::vector<Sighting> minute() {
    std::vector<Sighting> all;
    for (int i = 0; i < 12; ++i) {
      clock.advance(seconds(5));
      notifier.hints = {};
      for (Sighting& seen : watcher.step()) all.push_back(std::move(seen));
    }
    return all;
  }
};

}  // namespace

TEST_CASE("a small file that comes after a checkpoint is complete belongs to it") {
  const auto place = GENERATE(kExt4, kNfs);
  for (const int minutes : {0, 1, 3}) {  // of rest before it
    Late late(place);
    late.put_checkpoint("checkpoint-5");
    REQUIRE(late.regular(late.watcher.step()) == Told{{5, Verdict::kComplete}});
    for (int i = 0; i < minutes; ++i) CHECK(late.minute().empty());

    late.files.put_file("/out/checkpoint-5/chat_template.jinja", "{{ x }}");
    const auto seen = late.minute();

    REQUIRE_FALSE(seen.empty());
    CHECK(seen.back().verdict == Verdict::kComplete);
    CHECK(seen.back().files.size() == 3);
    CHECK(late.minute().empty());
  }
}

TEST_CASE("one that comes in the same tick of the clock as the last listing is seen") {
  Late late;
  late.put_checkpoint("checkpoint-5");
  late.clock.advance(seconds(5));
  REQUIRE(late.regular(late.watcher.step()) == Told{{5, Verdict::kComplete}});
  const auto tick = late.files.info("/out/checkpoint-5")->mtime_ns;
  late.clock.advance(seconds(5));
  CHECK(late.watcher.step().empty());

  late.files.put_file("/out/checkpoint-5/chat_template.jinja", "{{ x }}");
  REQUIRE(late.files.set_mtime("/out/checkpoint-5", tick).has_value());
  const auto seen = late.minute();

  REQUIRE_FALSE(seen.empty());
  CHECK(seen.back().files.size() == 3);
}

TEST_CASE("a folder on a local disk that rested before it was looked at is not listed again") {
  Late late(kExt4);
  late.put_checkpoint("checkpoint-5");
  late.clock.advance(seconds(5));
  REQUIRE(late.regular(late.watcher.step()) == Told{{5, Verdict::kComplete}});
  late.files.reset_calls();

  CHECK(late.minute().empty());

  CHECK(late.listings() == 0);
}

TEST_CASE("one that comes in the tick of the only listing on a local disk is seen") {
  Late late(kExt4);
  late.put_checkpoint("checkpoint-5");
  REQUIRE(late.regular(late.watcher.step()) == Told{{5, Verdict::kComplete}});

  late.files.put_file("/out/checkpoint-5/chat_template.jinja", "{{ x }}");  // no time has passed
  const auto seen = late.minute();

  REQUIRE_FALSE(seen.empty());
  CHECK(seen.back().files.size() == 3);
}

TEST_CASE("names that go, or that a file server gives, cause no look into the folder") {
  Late late;
  late.put("checkpoint-5/optimizer.pt");
  late.put("checkpoint-5/rng_state.pth");
  late.put_checkpoint("checkpoint-5");
  REQUIRE(late.regular(late.watcher.step()) == Told{{5, Verdict::kComplete}});
  CHECK(late.minute().empty());
  const int before = late.looks;

  REQUIRE(late.files.remove_file("/out/checkpoint-5/optimizer.pt").has_value());
  CHECK(late.minute().empty());
  late.files.put_file("/out/checkpoint-5/.nfs000000000000abcd00000001", "x");
  late.files.put_file("/out/checkpoint-5/.fuse_hidden0000abcd00000001", "x");
  CHECK(late.minute().empty());
  CHECK(late.looks == before);

  late.files.put_file("/out/checkpoint-5/notes.txt", "x");  // a look, and nothing to tell
  CHECK(late.minute().empty());
  CHECK(late.looks == before + 1);
}
