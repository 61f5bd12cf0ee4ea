#include "agent/watch/folder_names.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "agent/watch/tree.h"

namespace evalcar::watch {
namespace {

/// More than a file system's clock takes for a step, in which two names come at one time.
constexpr std::chrono::seconds kTick{3};

/// As NFS and FUSE call a file that goes while somebody reads it.
bool is_deleted_and_open(const std::string& path) {
  const std::string name = base_name(path);
  return name.starts_with(".nfs") || name.starts_with(".fuse_hidden");
}

}  // namespace

void FolderNames::begin_look(const FileSystem& files, const Clock& clock, const std::string& folder,
                             bool local) {
  const std::chrono::nanoseconds long_ago =
      clock.wall_now().time_since_epoch() - std::chrono::nanoseconds(kTick);
  known_ = see_mtime(files, clock, folder) && local && mtime_ns_ <= long_ago.count();
}

void FolderNames::take(const std::set<std::string>& names) {
  hashes_.clear();
  for (const std::string& name : names) hashes_.push_back(std::hash<std::string>()(name));
  std::ranges::sort(hashes_);
}

bool FolderNames::is_new(const std::string& relative) const {
  const bool known = std::ranges::binary_search(hashes_, std::hash<std::string>()(relative));
  return !known && !is_deleted_and_open(relative);
}

bool FolderNames::any_new(const std::set<std::string>& names) const {
  return std::ranges::any_of(names, [this](const std::string& name) { return is_new(name); });
}

/// False: it cannot be told now.
bool FolderNames::see_mtime(const FileSystem& files, const Clock& clock,
                            const std::string& folder) {
  const auto info = files.info_followed(folder);
  if (!info.has_value()) return false;
  if (info->mtime_ns == mtime_ns_) return true;
  mtime_ns_ = info->mtime_ns;
  mtime_seen_at_ = clock.monotonic_now();
  known_ = false;
  return true;
}

bool FolderNames::has_new(const FileSystem& files, const Clock& clock, const std::string& folder) {
  if (!see_mtime(files, clock, folder) || known_) return false;
  const MonotonicTime now = clock.monotonic_now();
  const auto entries = files.list(folder, kMaxFolderEntries);
  if (!entries.has_value()) return false;
  known_ = now - mtime_seen_at_ >= kTick;
  return std::ranges::any_of(*entries, [this](const auto& entry) { return is_new(entry.name); });
}

}  // namespace evalcar::watch
