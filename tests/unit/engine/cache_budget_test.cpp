#include "evaluator/engine/cache_budget.h"

#include <catch2/catch_test_macros.hpp>
#include <initializer_list>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

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
    const CacheBudget empty = gpu_cache_budget(memory_of(total, weights, total - weights - 1), 0);
    const CacheBudget full = gpu_cache_budget(memory_of(total, weights, 1), 0);

    CHECK(empty.planned == full.planned);
    CHECK(empty.alone == full.alone);
    CHECK(empty.now > full.now);
    CHECK(empty.planned <= empty.alone);
    CHECK(empty.planned <= empty.now);
  }
}

TEST_CASE("what this process itself takes beside its weights is not taken for others'") {
  for (const std::uint64_t bound : {0U, 1U}) {         // GB, of a model's own
    for (const std::uint64_t halves : {2U, 3U, 4U}) {  // of a GB, for CUDA's own
      GpuMemory memory = memory_of(24, 15, 24 - 15 - bound);
      memory.free -= halves * kGb / 2;
      memory.reserved = memory.weights + bound * kGb;

      const CacheBudget unshared = gpu_cache_budget(memory, 0);
      memory.free -= 5 * kGb / 2;
      const CacheBudget shared = gpu_cache_budget(memory, 0);

      CHECK(unshared.alone <= unshared.now);
      CHECK(shared.alone == unshared.alone);
      CHECK(shared.alone > shared.now);
    }
  }
}

TEST_CASE("what was read ahead is neither others' nor counted where nobody else is there") {
  GpuMemory memory = memory_of(80, 15, 63);
  memory.reserved = memory.weights;
  const CacheBudget without = gpu_cache_budget(memory, 0);

  const CacheBudget promised = gpu_cache_budget(memory, 15 * kGb);  // and not taken yet
  memory.reserved += 15 * kGb;
  memory.free -= 15 * kGb;
  const CacheBudget ahead = gpu_cache_budget(memory, 15 * kGb);

  CHECK(ahead.alone == without.alone);
  CHECK(promised.alone == without.alone);
  CHECK(ahead.without_next == without.now);
}

TEST_CASE("what is planned is there beside the next weights where those may be read ahead") {
  for (const auto& [total, weights, next] :
       std::initializer_list<std::tuple<std::uint64_t, std::uint64_t, bool>>{
           {140, 15, true}, {80, 15, true}, {24, 3, true}, {48, 15, false}, {40, 15, false}}) {
    // With 1.5 GB for CUDA's own, as nothing is known of it.
    GpuMemory memory = memory_of(total, weights, total - weights - 1);
    memory.free -= kGb / 2;
    CHECK(has_room_for(memory.weights, memory) == next);
    if (next) memory.free -= weights * kGb;

    const CacheBudget budget = gpu_cache_budget(memory, next ? weights * kGb : 0);

    CHECK(budget.planned <= budget.now);
    CHECK(budget.without_next >= budget.now);
  }
}

TEST_CASE("room for the next weights costs at most half of the cache") {
  // 140 · 0.8 - 2 - 15 = 95 GB beside the weights, 80 beside those of two checkpoints.
  CHECK(gpu_cache_budget(memory_of(140, 15, 120), 0).planned / kGb == 53);
  // 40 · 0.8 - 2 - 15 = 15 GB: nothing is left beside the next ones.
  CHECK(gpu_cache_budget(memory_of(40, 15, 24), 0).planned / kGb == 10);
  CHECK(gpu_cache_budget(memory_of(40, 15, 24), 0).alone / kGb == 10);
}

TEST_CASE("a larger model is read ahead only where what is planned for is there beside it, too") {
  const GpuMemory small = memory_of(80, 4, 70);
  CHECK(has_room_for(3 * kGb, small));
  CHECK(has_room_for(4 * kGb, small));
  CHECK_FALSE(has_room_for(16 * kGb, small));
  // Where as much again has no room, nothing has: planned is with all of it.
  CHECK_FALSE(has_room_for(kGb, memory_of(40, 15, 24)));
}

TEST_CASE("of a GPU's free memory only its share is this process's") {
  CHECK(free_share(memory_of(100, 0, 90)) / kGb == 70);
  CHECK(free_share(memory_of(100, 0, 20)) / kGb == 0);
  CHECK(free_share(memory_of(100, 0, 10)) == 0);
}

TEST_CASE("a model that is larger than its share leaves nothing, and no room for another") {
  const GpuMemory memory = memory_of(24, 30, 1);
  const CacheBudget budget = gpu_cache_budget(memory, 0);

  CHECK(budget.planned == 0);
  CHECK(budget.alone == 0);
  CHECK(budget.now == 0);
  CHECK_FALSE(has_room_for(memory.weights, memory));
}

TEST_CASE(
    "the widest pack is of as many of the longest requests as there are, fit and may go together") {
  const CacheBudget budget{.now = 500, .without_next = 500, .planned = 1000, .alone = 2000};
  const std::vector<std::int64_t> needs = {10, 20, 0, 20, 5};
  const auto widest = [&](std::int64_t most, std::vector<std::int64_t> more = {}) {
    more.insert(more.end(), needs.begin(), needs.end());
    const WidestPack pack = widest_pack(more, budget, 2, most);
    return std::pair(pack.sequences, pack.bytes);
  };

  CHECK(widest(8) == std::pair<std::int64_t, std::uint64_t>(4, 160));
  CHECK(widest(2) == std::pair<std::int64_t, std::uint64_t>(2, 80));
  // Of the longest one goes, of the others all do.
  CHECK(widest(8, {400}) == std::pair<std::int64_t, std::uint64_t>(5, 1000));
  CHECK(widest(8, {900}) == std::pair<std::int64_t, std::uint64_t>(5, 200));  // that one is alone
  CHECK(widest(8, {1001}) == widest(8));                                      // never
  CHECK(widest(8, {std::numeric_limits<std::int64_t>::max()}) == widest(8));
  CHECK(widest(std::numeric_limits<std::int64_t>::max()) == widest(8));
  CHECK(widest_pack({}, budget, 2, 8).bytes == 0);
}
