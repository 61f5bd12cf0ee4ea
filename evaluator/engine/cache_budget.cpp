#include "evaluator/engine/cache_budget.h"

#include <algorithm>

namespace evalcar::engine {
namespace {

// CUDA's own, kernels and workspaces.
constexpr double kContext = 1.0 * (1ULL << 30U);
// Rather too much, or what is planned would not be free.
constexpr double kPlannedContext = 2.0 * kContext;

class Room {
 public:
  explicit Room(const GpuMemory& memory)
      : total_(static_cast<double>(memory.total)),
        weights_(static_cast<double>(memory.weights)),
        of_others_(total_ * (1.0 - memory.utilization)) {}

  std::uint64_t cache_in(double room) const {
    return static_cast<std::uint64_t>(std::max(0.0, (room - of_others_) * 2.0 / 3.0));
  }
  /// Beside the checkpoint that is loaded and `next` bytes of another one.
  std::uint64_t cache_beside(double next, double context) const {
    return cache_in(total_ - context - weights_ - next);
  }
  std::uint64_t planned() const {
    const std::uint64_t alone = cache_beside(0, kPlannedContext);
    const std::uint64_t beside_next = cache_beside(weights_, kPlannedContext);
    return beside_next >= alone / 2 ? beside_next : alone;
  }

 private:
  double total_;
  double weights_;
  double of_others_;
};

}  // namespace

std::uint64_t free_share(const GpuMemory& memory) {
  const double of_others = static_cast<double>(memory.total) * (1.0 - memory.utilization);
  return static_cast<std::uint64_t>(std::max(0.0, static_cast<double>(memory.free) - of_others));
}

bool has_room_for(std::uint64_t next, const GpuMemory& memory) {
  const Room room(memory);
  const std::uint64_t beside = room.cache_beside(static_cast<double>(next), kPlannedContext);
  return beside > 0 && beside >= room.planned();
}

CacheBudget gpu_cache_budget(const GpuMemory& memory, std::uint64_t ahead) {
  const Room room(memory);
  const auto free = static_cast<double>(memory.free);
  return {.now = room.cache_in(free),
          .without_next = room.cache_in(free + static_cast<double>(ahead)),
          .planned = room.planned(),
          .alone = room.cache_beside(0, kContext)};
}

WidestPack widest_pack(std::span<const std::int64_t> needs, const CacheBudget& budget,
                       std::uint64_t position_bytes, std::int64_t most) {
  const std::uint64_t room = std::max(budget.now, budget.alone) / position_bytes;
  const std::uint64_t planned = budget.planned / position_bytes;
  std::uint64_t longest = 0, shortest = 0;  // positions; the longest of those that are not alone
  std::int64_t count = 0;
  for (const std::int64_t signed_need : needs) {
    const auto need = static_cast<std::uint64_t>(signed_need);
    if (signed_need <= 0 || need > room) continue;
    ++count;
    if (need <= planned) longest = std::max(longest, need);
    if (shortest == 0 || need < shortest) shortest = need;
  }
  if (count == 0) return {};
  const std::int64_t wanted = std::min(most, count);
  const auto fitting = static_cast<std::int64_t>(planned / shortest);
  const std::uint64_t together = static_cast<std::uint64_t>(wanted) * longest * position_bytes;
  return {std::clamp<std::int64_t>(fitting, 1, wanted),
          longest == 0 ? budget.planned : std::min(together, budget.planned)};
}

}  // namespace evalcar::engine
