#include "evaluator/engine/cache_budget.h"

#include <catch2/catch_test_macros.hpp>
#include <initializer_list>

using namespace evalcar::engine;

namespace {

constexpr std::uint64_t kGb = std::uint64_t{1} << 30U;

GpuMemory memory_of(std::uint64_t total, std::uint64_t weights, std::uint64_t free) {
  return {.total = total * kGb, .free = free * kGb, .weights = weights * kGb, .utilization = 0.8};
}

}  // namespace

TEST_CASE("what packs are planned for does not depend on what is free") {
  for (const auto& [total, weights] :
       std::initializer_list<std::pair<std::uint64_t, std::uint64_t>>{
           {140, 15}, {80, 15}, {40, 15}, {24, 6}, {24, 15}}) {
    const CacheBudget empty = gpu_cache_budget(memory_of(total, weights, total - weights - 1), kGb);
    const CacheBudget full = gpu_cache_budget(memory_of(total, weights, 1), kGb);

    CHECK(empty.planned == full.planned);
    CHECK(empty.alone == full.alone);
    CHECK(empty.now > full.now);
    CHECK(empty.planned <= empty.alone);
    CHECK(empty.planned <= empty.now);
  }
}

TEST_CASE("the next weights have their room where that costs at most half of the cache") {
  // 140 · 0.8 - 2 - 15 = 95 GB beside the weights, 80 beside those of two checkpoints.
  const CacheBudget large = gpu_cache_budget(memory_of(140, 15, 120), 0);
  CHECK(large.alone / kGb == 63);
  CHECK(large.planned / kGb == 53);
  // 40 · 0.8 - 2 - 15 = 15 GB: nothing is left beside the next ones.
  const CacheBudget small = gpu_cache_budget(memory_of(40, 15, 24), 0);
  CHECK(small.planned == small.alone);
}

TEST_CASE("a request that fits beside its own weights alone makes all packs those") {
  const GpuMemory memory = memory_of(80, 15, 64);
  const std::uint64_t beside_next = gpu_cache_budget(memory, 0).planned;

  CHECK(beside_next < gpu_cache_budget(memory, 0).alone);
  CHECK(gpu_cache_budget(memory, beside_next).planned == beside_next);
  CHECK(gpu_cache_budget(memory, beside_next + 1).planned == gpu_cache_budget(memory, 0).alone);
}

TEST_CASE("a model that is larger than its share leaves nothing") {
  const CacheBudget budget = gpu_cache_budget(memory_of(24, 30, 1), 1);

  CHECK(budget.planned == 0);
  CHECK(budget.alone == 0);
  CHECK(budget.now == 0);
}
