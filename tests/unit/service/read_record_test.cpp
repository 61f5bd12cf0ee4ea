#include "evaluator/service/read_record.h"

#include <catch2/catch_test_macros.hpp>
#include <stop_token>

#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using namespace evalcar::service;
using std::chrono::seconds;

namespace {

struct Disk {
  test::FakeClock clock;
  test::MemoryFileSystem files{clock};
  ReadRecord record{files, clock};

  Disk() {
    files.put_file("/d/a", "one");
    files.put_file("/d/b", "two");
    clock.advance(seconds{10});
  }
  void rewrite(const std::string& path, std::string_view content) {
    const std::int64_t date = files.info(path)->mtime_ns;
    files.put_file(path, content);
    REQUIRE(files.set_mtime(path, date).has_value());
    clock.advance(seconds{10});
  }
  auto proof() const { return record.proof(); }
};

}  // namespace

TEST_CASE("what was read is proved by what the files were, each once") {
  Disk disk;
  CHECK(disk.proof() == std::vector<ReadFile>{});
  REQUIRE(disk.record.open_readable("/d/b").has_value());
  REQUIRE(disk.record.open_readable("/d/a").has_value());
  REQUIRE(disk.record.open_readable("/d/b").has_value());
  CHECK_FALSE(disk.record.open_readable("/d/none").has_value());

  const auto proof = disk.proof();

  REQUIRE(proof.has_value());
  REQUIRE(proof->size() == 2);
  CHECK((*proof)[0] == ReadFile{"/d/a", tasks::identity_of(*disk.files.info("/d/a"))});
  CHECK((*proof)[1].path == "/d/b");
  CHECK(are_unchanged(disk.files, *proof));
}

TEST_CASE("a file that is rewritten after it was opened proves nothing, whatever date it bears") {
  Disk disk;
  REQUIRE(disk.record.open_readable("/d/a").has_value());
  disk.rewrite("/d/a", "ONE");

  CHECK_FALSE(disk.proof().has_value());
}

TEST_CASE("a file that was another one between two times it was opened proves nothing") {
  Disk disk;
  REQUIRE(disk.record.open_readable("/d/a").has_value());
  REQUIRE(disk.files.rename("/d/a", "/d/kept").has_value());
  REQUIRE(disk.files.rename("/d/b", "/d/a").has_value());
  REQUIRE(disk.record.open_readable("/d/a").has_value());
  REQUIRE(disk.files.rename("/d/kept", "/d/a").has_value());
  disk.clock.advance(seconds{10});

  CHECK_FALSE(disk.proof().has_value());
}

TEST_CASE(
    "a file that was opened just after it was written proves nothing, however late it is asked") {
  Disk disk;
  disk.files.put_file("/d/a", "new");
  REQUIRE(disk.record.open_readable("/d/a").has_value());
  disk.files.put_file("/d/a", "NEW");  // within the same tick: nothing of it tells
  disk.clock.advance(seconds{10});

  CHECK_FALSE(disk.proof().has_value());
}

TEST_CASE("what is stopped proves nothing") {
  Disk disk;
  REQUIRE(disk.record.open_readable("/d/a").has_value());
  std::stop_source stop;
  CHECK(disk.record.proof(stop.get_token()).has_value());
  stop.request_stop();
  CHECK_FALSE(disk.record.proof(stop.get_token()).has_value());
}

TEST_CASE("a changed, removed or replaced file is not the one that was read") {
  for (const int way : {0, 1, 2, 3}) {
    INFO(way);
    Disk disk;
    REQUIRE(disk.record.open_readable("/d/a").has_value());
    const auto proof = disk.proof();
    REQUIRE(proof.has_value());
    if (way == 0) disk.rewrite("/d/a", "ONE");
    if (way == 1) REQUIRE(disk.files.remove_file("/d/a").has_value());
    if (way == 2) REQUIRE(disk.files.rename("/d/b", "/d/a").has_value());
    if (way == 3) REQUIRE(disk.files.set_mtime("/d/a", 1).has_value());

    CHECK_FALSE(are_unchanged(disk.files, *proof));
  }
}

TEST_CASE("what is read through the record cannot be changed through it") {
  Disk disk;
  CHECK(disk.record.remove_file("/d/a").error().code == ErrorCode::kUnsupported);
  CHECK(disk.record.create("/d/c", 0600).error().code == ErrorCode::kUnsupported);
  CHECK(disk.files.exists("/d/a"));
}
