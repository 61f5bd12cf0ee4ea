// Pages of freed memory are there for the next allocation, and are the system's again when they are
// given back.
#include "evaluator/engine/host_pages.h"

#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <fstream>
#include <memory>

using namespace evalcar::engine;

namespace {

// More than the C library ever keeps of its own accord.
constexpr std::size_t kBytes = std::size_t{96} << 20U;

std::size_t page() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

long page_faults() {
  rusage usage{};
  REQUIRE(getrusage(RUSAGE_SELF, &usage) == 0);
  return usage.ru_minflt;
}

std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t all = 0, resident = 0;
  statm >> all >> resident;
  REQUIRE(statm);
  return resident * page();
}

/// How many pages the kernel had to find for a block that is written and freed.
long faults_of_a_block() {
  const long before = page_faults();
  const auto block = std::make_unique_for_overwrite<std::byte[]>(kBytes);
  volatile std::byte* const bytes = block.get();
  for (std::size_t at = 0; at < kBytes; at += page()) bytes[at] = std::byte{1};
  return page_faults() - before;
}

}  // namespace

TEST_CASE("a block takes the pages of the one before it, until they are given back") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  SKIP("the sanitizer has an allocator of its own");
#endif
  keep_freed_pages();
  faults_of_a_block();
  CHECK(faults_of_a_block() < 100);

  const std::size_t kept = resident_bytes();
  give_back_freed_pages();
  CHECK(resident_bytes() + kBytes / 2 < kept);
  CHECK(faults_of_a_block() > 100);
}
