// What the control groups of this process leave it of the host's memory. Without libtorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace evalcar::engine {

/// Bytes.
struct GroupMemory {
  std::uint64_t available = 0;  ///< what may be taken before the kernel ends or throttles processes
  std::uint64_t total = 0;      ///< the least limit
};

/// Of the group that this process is in and all groups above it (control_groups()), the least.
/// Version 2 (memory.max,
/// memory.high) and version 1 (memory.limit_in_bytes); files that are only cached count as free.
/// Absent: no group limits memory. `root` is put before /proc and /sys (tests). Never throws. Any
/// thread.
std::optional<GroupMemory> group_memory(const std::string& root = "");

}  // namespace evalcar::engine
