#include "evaluator/engine/cache_budget.h"

#include <algorithm>

namespace evalcar::engine {
namespace {

// CUDA's own, kernels and workspaces: rather too much, or what is planned would not be free.
constexpr double kContext = 2.0 * (1ULL << 30U);

}  // namespace

CacheBudget gpu_cache_budget(const GpuMemory& memory, std::uint64_t least) {
  const auto total = static_cast<double>(memory.total);
  const auto weights = static_cast<double>(memory.weights);
  const double of_others = total * (1.0 - memory.utilization);
  const auto cache_of = [&](double room) {
    return static_cast<std::uint64_t>(std::max(0.0, (room - of_others) * 2.0 / 3.0));
  };
  CacheBudget budget{.now = cache_of(static_cast<double>(memory.free)),
                     .alone = cache_of(total - kContext - weights)};
  const std::uint64_t beside_next = cache_of(total - kContext - 2.0 * weights);
  const bool enough = beside_next >= std::max(least, budget.alone / 2);
  budget.planned = enough ? beside_next : budget.alone;
  return budget;
}

}  // namespace evalcar::engine
