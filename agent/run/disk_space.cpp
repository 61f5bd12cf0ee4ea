#include "agent/run/disk_space.h"

#include <algorithm>
#include <limits>
#include <set>

namespace evalcar::run {

std::uint64_t DiskSpace::folder_bytes(const std::string& path, int depth) const {
  std::uint64_t bytes = 0;
  const auto entries = files_.list(path);
  if (!entries.has_value()) return 0;
  for (const DirectoryEntry& entry : *entries) {
    const std::string child = join_path(path, entry.name);
    if (entry.type == FileType::kDirectory && depth > 1) bytes += folder_bytes(child, depth - 1);
    if (entry.type != FileType::kRegular) continue;
    if (const auto info = files_.info(child); info.has_value()) bytes += info->size_bytes;
  }
  return bytes;
}

std::uint64_t DiskSpace::min_free() const {
  if (limits_.min_free.has_value()) return *limits_.min_free;
  std::set<std::string> folders;
  if (!view_.present.empty()) folders.insert(view_.present.rbegin()->second);
  if (!view_.complete.empty()) folders.insert(view_.complete.rbegin()->second.path);
  std::uint64_t largest = 0;
  for (const std::string& folder : folders) largest = std::max(largest, folder_bytes(folder, 4));
  return 2 * largest;
}

std::uint64_t DiskSpace::lease_budget() const {
  return limits_.lease_budget.value_or(std::numeric_limits<std::uint64_t>::max());
}

std::uint64_t DiskSpace::copy_budget() const {
  const auto free = free_bytes();
  const std::uint64_t keep = min_free();
  if (!free.has_value() || *free <= keep) return 0;
  return std::min(*free - keep, lease_budget());
}

std::uint64_t DiskSpace::spare_copy_budget(const stage::Stage& stage) const {
  // What is held is asked of every file.
  if (!has_budget()) return copy_budget();
  const std::uint64_t budget = lease_budget();
  return std::min(copy_budget(), budget - std::min(budget, stage.held().bytes()));
}

}  // namespace evalcar::run
