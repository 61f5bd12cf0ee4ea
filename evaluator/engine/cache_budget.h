// How many bytes the keys and values of a run may take. Pure arithmetic, without libtorch.
#pragma once

#include <cstdint>
#include <span>

namespace evalcar::engine {

struct CacheBudget {
  std::uint64_t now = 0;  ///< of what is free
  /// Of what were free without the weights that were read ahead, if there are any.
  std::uint64_t without_next = 0;
  /// What packs are planned for where so much is free: whatever else lies in the memory at the
  /// moment, the same requests make the same packs.
  std::uint64_t planned = 0;
  std::uint64_t alone = 0;  ///< if nobody used anything but this process, by what it holds now
};

struct GpuMemory {
  std::uint64_t total = 0;
  std::uint64_t free = 0;
  std::uint64_t weights = 0;  ///< of the checkpoint that is loaded
  /// What this process holds by its allocator: weights, those that were read ahead among them, what
  /// a model made of them when it was bound, and whatever else has to stay.
  std::uint64_t reserved = 0;
  double utilization = 0.8;  ///< share of `total` that this process may use
};

/// Bytes that are free of this process's share.
std::uint64_t free_share(const GpuMemory& memory);

/// Whether the weights of the next checkpoint, of `next` bytes, may be read ahead: what is planned
/// for is there beside them, too.
bool has_room_for(std::uint64_t next, const GpuMemory& memory);

/// Two thirds of what is left: the others are for activations. Planned is with room for as many
/// weights again, which may come at any time, where those leave half of the cache or more.
/// `ahead`: bytes that were read ahead or are being read.
CacheBudget gpu_cache_budget(const GpuMemory& memory, std::uint64_t ahead);

struct WidestPack {
  std::int64_t sequences = 0;  ///< of the shortest requests
  std::uint64_t bytes = 0;     ///< of the longest that do not stand alone
};
/// The widest packs that there can be where all that is planned for is free. `needs`: cache
/// positions of each request, of `position_bytes` each; 0 asks for nothing, and what never fits
/// counts as little; what is longer than is planned for stands alone. `most`: sequences that go
/// together at most.
WidestPack widest_pack(std::span<const std::int64_t> needs, const CacheBudget& budget,
                       std::uint64_t position_bytes, std::int64_t most);

}  // namespace evalcar::engine
