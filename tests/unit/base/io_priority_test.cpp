#include "store/base/io_priority.h"

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <string>
#include <thread>

using evalcar::IoPriority;

namespace {

// What util-linux reads of the same thread: the numbers are of its own making, not of ours.
std::string told_by_ionice() {
  std::array<char, 100> line{};
  // A child of the thread that calls, which inherits its priority.
  FILE* const pipe = ::popen("ionice", "r");
  if (pipe == nullptr) return "";
  const char* const read = std::fgets(line.data(), line.size(), pipe);
  ::pclose(pipe);
  std::string text = read == nullptr ? "" : read;
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace

TEST_CASE("the disk priority that is set is the one that others read, of this thread alone") {
  const IoPriority before = evalcar::io_priority();
  std::thread([] {
    REQUIRE(evalcar::set_io_priority({IoPriority::Class::kBestEffort, 7}));
    CHECK(evalcar::io_priority() == IoPriority{IoPriority::Class::kBestEffort, 7});
    CHECK(told_by_ionice() == "best-effort: prio 7");

    REQUIRE(evalcar::set_io_priority({IoPriority::Class::kIdle}));
    CHECK(evalcar::io_priority() == IoPriority{IoPriority::Class::kIdle});
    CHECK(told_by_ionice() == "idle");
  }).join();
  CHECK(evalcar::io_priority() == before);
}

TEST_CASE("a disk priority that the system refuses is told, and what was set stays") {
  const IoPriority before = evalcar::io_priority();
  CHECK_FALSE(evalcar::set_io_priority({static_cast<IoPriority::Class>(6), 0}));
  CHECK(evalcar::io_priority() == before);
}
