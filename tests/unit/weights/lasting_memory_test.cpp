// What is made to stay goes back to the system at once when it is gone.
#include "evaluator/weights/lasting_memory.h"

#include <malloc.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <fstream>
#include <memory>

#include "tests/unit/support/sanitizers.h"

using evalcar::weights::lasting_memory;

namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

std::int64_t resident_mib() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t all = 0, resident = 0;
  statm >> all >> resident;
  REQUIRE(statm);
  return resident * sysconf(_SC_PAGESIZE) / kMiB;
}

}  // namespace

TEST_CASE("memory of any size can be written from end to end") {
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{1}, 2 * kMiB - 1, 3 * kMiB + 5}) {
    const at::Tensor memory = lasting_memory(bytes, at::kCPU);
    CHECK(memory.scalar_type() == at::kByte);
    CHECK(memory.is_contiguous());
    memory.fill_(7);
    CHECK(memory.numel() == bytes);
    CHECK(memory.sum().item<std::int64_t>() == 7 * bytes);
  }
}

TEST_CASE(
    "memory is given back when its last tensor is gone, though the process keeps what it frees") {
#ifdef __GLIBC__
  if (evalcar::test::kUnderAddressSanitizer) SKIP("the sanitizer has an allocator of its own");
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
  at::Tensor memory = lasting_memory(96 * kMiB, at::kCPU);
  memory.fill_(7);
  at::Tensor view = memory.narrow(0, 0, 8);
  const auto behind = std::make_unique<std::byte[]>(4096);
  memory = at::Tensor();
  const std::int64_t held = resident_mib();

  view = at::Tensor();

  CHECK(resident_mib() + 80 < held);
#else
  SKIP("another C library keeps nothing");
#endif
}
