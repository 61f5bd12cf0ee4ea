// Pages of freed memory are there for the next allocation, and are the system's again when they are
// given back.
#include "evaluator/engine/host_pages.h"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <fstream>
#include <memory>

#include "tests/unit/support/sanitizers.h"

using namespace evalcar::engine;

namespace {

// More than the C library ever keeps of its own accord.
constexpr std::size_t kBytes = std::size_t{96} << 20U;

std::size_t page() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t all = 0, resident = 0;
  statm >> all >> resident;
  REQUIRE(statm);
  return resident * page();
}

void write_and_free() {
  const auto block = std::make_unique_for_overwrite<std::byte[]>(kBytes);
  volatile std::byte* const bytes = block.get();
  for (std::size_t at = 0; at < kBytes; at += page()) bytes[at] = std::byte{1};
}

}  // namespace

TEST_CASE("a block takes the pages of the one before it, until they are given back") {
#ifdef __GLIBC__
  if (evalcar::test::kUnderAddressSanitizer || evalcar::test::kUnderThreadSanitizer)
    SKIP("the sanitizer has an allocator of its own");
  keep_freed_pages();
  const std::size_t without = resident_bytes();
  write_and_free();
  const std::size_t kept = resident_bytes();
  CHECK(kept > without + kBytes / 2);
  write_and_free();
  CHECK(resident_bytes() < kept + kBytes / 2);

  give_back_freed_pages();
  CHECK(resident_bytes() + kBytes / 2 < kept);
#else
  SKIP("another C library keeps nothing");
#endif
}
