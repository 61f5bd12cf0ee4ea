// Publication of a file under every failure and every power cut.
#include <catch2/catch_test_macros.hpp>
#include <cerrno>

#include "store/base/file_system.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/memory_file_system.h"

using namespace evalcar;
using test::UnsyncedNames;

namespace {
constexpr const char* kPath = "/out/best.json";

std::size_t calls_of_one_write() {
  test::FakeClock clock;
  test::MemoryFileSystem files(clock);
  files.put_file(kPath, "old");
  REQUIRE(write_file_atomically(files, kPath, "new").has_value());
  return files.calls().size();
}
}  // namespace

TEST_CASE("an atomic write is create, write, sync, close, rename, sync of the folder") {
  test::FakeClock clock;
  test::MemoryFileSystem files(clock);
  files.put_directory("/out");
  REQUIRE(write_file_atomically(files, kPath, "new").has_value());

  std::vector<std::string> operations;
  for (const test::Call& call : files.calls()) operations.push_back(call.operation);
  CHECK(operations ==
        std::vector<std::string>{"create", "append", "sync", "close", "rename", "sync_directory"});
}

TEST_CASE("a power cut at any call of an atomic write leaves the old or the new content, whole") {
  const std::size_t calls = calls_of_one_write();
  for (const bool had_old : {false, true}) {
    for (const UnsyncedNames names : {UnsyncedNames::kDropped, UnsyncedNames::kKept}) {
      for (std::size_t n = 1; n <= calls; ++n) {
        test::FakeClock clock;
        test::MemoryFileSystem files(clock);
        files.put_directory("/out");
        if (had_old) files.put_file(kPath, "old");

        files.die_at_call(n);
        CHECK_FALSE(write_file_atomically(files, kPath, "new").has_value());
        files.power_cut(names);

        INFO("cut at call " << n << " of " << calls);
        const auto content = files.content(kPath);
        if (had_old) REQUIRE(content.has_value());
        if (content.has_value()) CHECK((*content == "new" || (had_old && *content == "old")));
      }
    }
  }
}

TEST_CASE("an atomic write that returned success survives a power cut") {
  for (const UnsyncedNames names : {UnsyncedNames::kDropped, UnsyncedNames::kKept}) {
    test::FakeClock clock;
    test::MemoryFileSystem files(clock);
    files.put_file(kPath, "old");
    REQUIRE(write_file_atomically(files, kPath, "new").has_value());
    files.power_cut(names);
    CHECK(files.content(kPath) == "new");
  }
}

TEST_CASE("a failing call leaves the old content and no temporary file") {
  const std::size_t calls = calls_of_one_write();
  for (std::size_t n = 1; n < calls; ++n) {  // the last, the folder's sync, comes after the rename
    test::FakeClock clock;
    test::MemoryFileSystem files(clock);
    files.put_file(kPath, "old");

    files.fail_call(n, ENOSPC);
    const Status written = write_file_atomically(files, kPath, "new");

    INFO("failed at call " << n);
    REQUIRE_FALSE(written.has_value());
    CHECK(written.error().code == ErrorCode::kIo);
    CHECK(written.error().message.find("No space left") != std::string::npos);
    CHECK(files.content(kPath) == "old");
    CHECK(files.tree("/out") == std::vector<std::string>{"best.json"});
  }
}

TEST_CASE("the fake disk loses a rename whose data was not synced, so it can prove the sync") {
  test::FakeClock clock;
  test::MemoryFileSystem files(clock);
  files.put_file(kPath, "old");
  auto file = files.create("/out/t", 0644);
  REQUIRE(file.has_value());
  REQUIRE((*file)->append("new").has_value());
  REQUIRE(files.rename("/out/t", kPath).has_value());

  files.power_cut(UnsyncedNames::kKept);

  CHECK(files.content(kPath) == "");
}
