// Who owns an output directory.
#include "agent/run/output_lock.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <optional>

#include "tests/unit/support/temporary_directory.h"

using namespace evalcar;
using run::OutputLock;
namespace fs = std::filesystem;

namespace {

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The record of an owner on another machine, renewed just now or long ago.
void write_owner(const std::string& path, std::chrono::seconds age) {
  std::ofstream(path)
      << "pid 7 on elsewhere since 2026-11-21T09:00:05.123456Z token 0123456789abcdef "
         "machine b/1 start 5 renewed\n";
  fs::last_write_time(path, fs::file_time_type::clock::now() - age);
}

}  // namespace

TEST_CASE("a second agent is told the pid, the host and since when, and may follow the first") {
  const test::TemporaryDirectory folder;
  const std::string path = folder / "lock";
  auto first = std::optional(OutputLock::take(path, false));
  REQUIRE(first->has_value());

  const auto second = OutputLock::take(path, false);

  REQUIRE_FALSE(second.has_value());
  CHECK(second.error().code == ErrorCode::kUnavailable);
  const std::string pid = "pid " + std::to_string(::getpid()) + " on ";
  CHECK(second.error().message.find(pid) != std::string::npos);
  CHECK(second.error().message.find(" since 20") != std::string::npos);
  CHECK((*first)->check().has_value());
  first.reset();
  CHECK(content_of(path).empty());
  CHECK(OutputLock::take(path, false).has_value());
}

TEST_CASE("an owner whose record was replaced learns who took over, and does not touch it") {
  const test::TemporaryDirectory folder;
  const std::string path = folder / "lock";
  {
    const auto lock = OutputLock::take(path, false);
    REQUIRE(lock.has_value());
    fs::remove(path);
    CHECK(lock->check().error().code == ErrorCode::kNotFound);
    write_owner(path, std::chrono::seconds(0));
    const Status mine = lock->check();
    REQUIRE_FALSE(mine.has_value());
    CHECK(mine.error().code == ErrorCode::kUnavailable);
    CHECK(mine.error().message.find("pid 7 on elsewhere") != std::string::npos);
  }
  CHECK(content_of(path).starts_with("pid 7 on elsewhere"));
}

TEST_CASE("an owner on another machine counts while it renews its record, and may wake up later") {
  const test::TemporaryDirectory folder;
  const std::string path = folder / "lock";
  write_owner(path, std::chrono::seconds(1));
  const auto refused = OutputLock::take(path, true);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().message.find("elsewhere") != std::string::npos);

  write_owner(path, OutputLock::kLease + std::chrono::seconds(1));
  const auto taken = OutputLock::take(path, true);
  REQUIRE(taken.has_value());
  CHECK(taken->replaced_living());
  CHECK(taken->needs_renewal());
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("the record of a process of this machine that is dead stands in nobody's way") {
  const test::TemporaryDirectory folder;
  const std::string path = folder / "lock";
  const pid_t child = ::fork();
  if (child == 0) {
    auto lock = OutputLock::take(path, true);
    ::_exit(lock.has_value() ? 0 : 1);  // as killed: nothing is given up
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  REQUIRE(status == 0);
  REQUIRE(content_of(path).starts_with("pid " + std::to_string(child)));

  const auto taken = OutputLock::take(path, true);

  REQUIRE(taken.has_value());
  CHECK_FALSE(taken->replaced_living());
}

TEST_CASE("what an older evalcar wrote into the lock is told, and no record") {
  const test::TemporaryDirectory folder;
  const std::string path = folder / "lock";
  std::ofstream(path) << "pid 7 on elsewhere\n";
  CHECK(OutputLock::take(path, true).has_value());
}
