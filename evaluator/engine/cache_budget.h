// How many bytes the keys and values of a run may take. Pure arithmetic, without libtorch.
#pragma once

#include <cstdint>

namespace evalcar::engine {

struct CacheBudget {
  std::uint64_t now = 0;  ///< of what is free
  /// What packs are planned for where so much is free: whatever else lies in the memory at the
  /// moment, the same requests make the same packs.
  std::uint64_t planned = 0;
  std::uint64_t alone = 0;  ///< if nobody used anything but this process for its weights
};

struct GpuMemory {
  std::uint64_t total = 0;
  std::uint64_t free = 0;
  std::uint64_t weights = 0;  ///< of the checkpoint that is loaded
  double utilization = 0.8;   ///< share of `total` that this process may use
};

/// Two thirds of what is left: the others are for activations. Planned is with room for the weights
/// of the next checkpoint, which may be read ahead at any time, unless that takes more than half of
/// the cache, or leaves less than `least` bytes (of the largest request).
CacheBudget gpu_cache_budget(const GpuMemory& memory, std::uint64_t least);

}  // namespace evalcar::engine
