#include "evaluator/weights/huge_pages.h"

#include <ATen/ops/empty.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

using evalcar::weights::ask_for_huge_pages;

namespace {

/// Whether huge pages were asked for at that address, as the kernel tells ("hg" of VmFlags).
bool is_asked_for(std::uintptr_t address) {
  std::ifstream maps("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long long begin = 0, end = 0;
    char dash = 0;
    std::istringstream words(line);
    if (words >> std::hex >> begin >> dash >> end && dash == '-')
      here = begin <= address && address < end;
    if (here && line.starts_with("VmFlags:")) return line.find(" hg") != std::string::npos;
  }
  return false;
}

}  // namespace

TEST_CASE("huge pages are asked for within a tensor's memory, and nowhere else") {
  if (access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) != 0)
    SKIP("this kernel has no huge pages");
  constexpr std::int64_t kMiB = 1 << 20;
  const at::Tensor memory = at::empty({64 * kMiB}, at::kByte);
  const auto address = reinterpret_cast<std::uintptr_t>(memory.const_data_ptr());
  REQUIRE_FALSE(is_asked_for(address + 32 * kMiB));

  ask_for_huge_pages(memory.narrow(0, 16 * kMiB, 32 * kMiB));

  CHECK(is_asked_for(address + 32 * kMiB));
  CHECK_FALSE(is_asked_for(address + 16 * kMiB - 1));
  CHECK_FALSE(is_asked_for(address + 48 * kMiB));
  CHECK_FALSE(is_asked_for(address));
}

TEST_CASE("a small tensor, and none, are left alone") {
  const at::Tensor small = at::empty({4096}, at::kByte);
  ask_for_huge_pages(small);
  ask_for_huge_pages(at::Tensor());
  CHECK_FALSE(is_asked_for(reinterpret_cast<std::uintptr_t>(small.const_data_ptr())));
}
