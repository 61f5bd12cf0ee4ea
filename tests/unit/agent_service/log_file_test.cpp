#include "agent/service/log_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <string>

#include "store/base/file_system.h"
#include "tests/unit/agent/temporary_folder.h"

using namespace evalcar;
using namespace evalcar::agent_service;

namespace {

std::string content(const std::string& path) {
  const RealFileSystem files;
  return read_file(files, path, 1U << 20U).value_or("(none)");
}

std::unique_ptr<LogFile> open(LogFileOptions options) {
  auto file = LogFile::open(std::move(options));
  REQUIRE(file.has_value());
  return std::move(file).value();
}

}  // namespace

TEST_CASE("a log goes on at the end of what is there") {
  const testing::TemporaryFolder folder;
  folder.write("log", "before\n");

  open({.path = folder / "log"})->write("after\n");

  CHECK(content(folder / "log") == "before\nafter\n");
}

TEST_CASE("a log that was renamed or removed is begun anew under its name, and no line is lost") {
  const testing::TemporaryFolder folder;
  const auto log = open({.path = folder / "log"});
  log->write("one\n");
  REQUIRE(std::rename((folder / "log").c_str(), (folder / "log.old").c_str()) == 0);
  log->write("two\n");
  REQUIRE(::unlink((folder / "log").c_str()) == 0);
  log->write("three\n");

  CHECK(content(folder / "log.old") == "one\n");
  CHECK(content(folder / "log") == "three\n");
}

TEST_CASE("a log that was truncated goes on at its new end, without a hole") {
  const testing::TemporaryFolder folder;
  const auto log = open({.path = folder / "log"});
  log->write("one\n");
  REQUIRE(::truncate((folder / "log").c_str(), 0) == 0);
  log->write("two\n");

  CHECK(content(folder / "log") == "two\n");
}

TEST_CASE("a log that is full becomes the first of three older ones") {
  const testing::TemporaryFolder folder;
  const auto log = open({.path = folder / "log", .max_bytes = 10});
  for (const char* line : {"111111\n", "222222\n", "333333\n", "444444\n", "555555\n"}) {
    log->write(line);
  }

  CHECK(content(folder / "log") == "555555\n");
  CHECK(content(folder / "log.1") == "444444\n");
  CHECK(content(folder / "log.3") == "222222\n");
  CHECK(content(folder / "log.4") == "(none)");
}

TEST_CASE("a line that is larger than the whole limit is written all the same") {
  const testing::TemporaryFolder folder;
  const auto log = open({.path = folder / "log", .max_bytes = 4});
  log->write("a long line\n");

  CHECK(content(folder / "log") == "a long line\n");
}

TEST_CASE("where the folder of a log went, lines go on into the file that is held") {
  const testing::TemporaryFolder folder;
  folder.write("sub/log", "");
  const auto log = open({.path = folder / "sub/log"});
  REQUIRE(std::rename((folder / "sub").c_str(), (folder / "away").c_str()) == 0);
  log->write("one\n");

  CHECK(content(folder / "away/log") == "one\n");
}

TEST_CASE("a full device costs lines, which are counted and said once there is room") {
  const auto log = open({.path = "/dev/full"});
  log->write("one\ntwo\n");
  log->write("three\n");
  CHECK(log->lost() == 3);

  const testing::TemporaryFolder folder;
  REQUIRE(::symlink("/dev/full", (folder / "log").c_str()) == 0);
  const auto mended = open({.path = folder / "log"});
  mended->write("one\n");
  REQUIRE(::unlink((folder / "log").c_str()) == 0);
  mended->write("two\n");
  CHECK(mended->lost() == 0);
  CHECK(content(folder / "log") ==
        "1 lines of the log are missing here: No space left on device\ntwo\n");
}

TEST_CASE("what is no file is refused as a log, at once") {
  const testing::TemporaryFolder folder;
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);

  CHECK_FALSE(LogFile::open({.path = folder / "pipe"}).has_value());
  CHECK_FALSE(LogFile::open({.path = folder.path()}).has_value());
  CHECK_FALSE(LogFile::open({.path = folder / "none/log"}).has_value());
}
