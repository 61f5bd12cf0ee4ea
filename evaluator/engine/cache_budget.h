// How many bytes the keys and values of a run may take. Pure arithmetic, without libtorch.
#pragma once

#include <cstdint>

namespace evalcar::engine {

struct CacheBudget {
  std::uint64_t now = 0;  ///< of what is free
  /// Of what were free without the weights that were read ahead, if there are any.
  std::uint64_t without_next = 0;
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

/// Bytes that are free of this process's share.
std::uint64_t free_share(const GpuMemory& memory);

/// Whether the weights of the next checkpoint may be read ahead: they leave half of the cache or
/// more.
bool has_room_for_next(const GpuMemory& memory);

/// Two thirds of what is left: the others are for activations. Planned is with room for the weights
/// of the next checkpoint where there is any, since they may come at any time.
CacheBudget gpu_cache_budget(const GpuMemory& memory);

}  // namespace evalcar::engine
