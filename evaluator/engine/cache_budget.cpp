#include "evaluator/engine/cache_budget.h"

#include <algorithm>

namespace evalcar::engine {
namespace {

// CUDA's own, kernels and workspaces, and what a model makes of its weights when it is bound (the
// tower of Qwen2.5-VL-7B 0.8 GiB). Rather too much: else what is planned would not be free, and
// what this process itself uses would count as others'.
constexpr double kContext = 2.0 * (1ULL << 30U);

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
  std::uint64_t cache_beside(double next) const { return cache_behind(weights_ + next); }
  /// Where this process holds so much, and nobody else anything.
  std::uint64_t cache_behind(double held) const { return cache_in(total_ - kContext - held); }
  std::uint64_t planned() const {
    const std::uint64_t alone = cache_beside(0);
    const std::uint64_t beside_next = cache_beside(weights_);
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
  const std::uint64_t beside = room.cache_beside(static_cast<double>(next));
  return beside > 0 && beside >= room.planned();
}

CacheBudget gpu_cache_budget(const GpuMemory& memory, std::uint64_t ahead) {
  const Room room(memory);
  const auto free = static_cast<double>(memory.free);
  // What is read ahead may be counted before it is taken.
  const std::uint64_t kept = memory.reserved - std::min(memory.reserved, ahead);
  const auto held = static_cast<double>(std::max(memory.weights, kept));
  return {.now = room.cache_in(free),
          .without_next = room.cache_in(free + static_cast<double>(ahead)),
          .planned = room.planned(),
          .alone = room.cache_behind(held)};
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
