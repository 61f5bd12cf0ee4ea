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
  std::uint64_t cache_beside(double checkpoints, double context) const {
    return cache_in(total_ - context - checkpoints * weights_);
  }
  std::uint64_t planned_alone() const { return cache_beside(1.0, kPlannedContext); }
  std::uint64_t planned_beside_next() const { return cache_beside(2.0, kPlannedContext); }

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

bool has_room_for_next(const GpuMemory& memory) {
  const Room room(memory);
  const std::uint64_t beside = room.planned_beside_next();
  return beside > 0 && beside >= room.planned_alone() / 2;
}

CacheBudget gpu_cache_budget(const GpuMemory& memory) {
  const Room room(memory);
  const auto free = static_cast<double>(memory.free);
  return {.now = room.cache_in(free),
          .without_next = room.cache_in(free + static_cast<double>(memory.weights)),
          .planned = has_room_for_next(memory) ? room.planned_beside_next() : room.planned_alone(),
          .alone = room.cache_beside(1.0, kContext)};
}

}  // namespace evalcar::engine
