// The control groups of this process, and the processor time that they leave it. Without libtorch.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace evalcar::engine {

struct ControlGroup {
  std::string folder;
  bool is_second;  ///< of version 2, in the names of its files; else of version 1
};

/// The group that this process is in for `controller` ("memory", "cpu") and all above it: a
/// service's limits are its own group's, a container's or a Slurm job's may be further up. `root`
/// is put before /proc and /sys (tests). Never throws. Any thread.
std::vector<ControlGroup> control_groups(std::string_view controller, const std::string& root);

/// As many processors as the groups' quotas come to (cpu.max; version 1: cpu.cfs_quota_us), the
/// least of all, rounded up: more threads than that are all stopped once it is used up. Absent: no
/// quota. Never throws. Any thread.
std::optional<int> group_cores(const std::string& root = "");

}  // namespace evalcar::engine
