#include "evaluator/tasks/file_identity.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>

#include "store/base/file_system_kind.h"

namespace evalcar::tasks {
namespace {

constexpr std::chrono::seconds kCoarsestTick{2};

// Elsewhere a ctime may be invented: FUSE and 9p give what their servers like, FAT and SMB have
// none, an image's is as old as the image, and an overlay's is that of whatever lies below.
constexpr std::array<std::string_view, 14> kKeepCtime = {
    "ext4", "XFS", "Btrfs",  "tmpfs", "ZFS",  "F2FS",   "bcachefs",
    "JFS",  "NFS", "Lustre", "GPFS",  "Ceph", "BeeGFS", "WekaFS"};

}  // namespace

FileIdentity identity_of(const FileInfo& info) {
  return {.device = info.device,
          .inode = info.inode,
          .size_bytes = info.size_bytes,
          .mtime_ns = info.mtime_ns,
          .ctime_ns = info.ctime_ns};
}

bool keeps_ctime(const FileSystem& files, const std::string& path) {
  const auto type = files.file_system_type(path);
  return type.has_value() &&
         std::ranges::find(kKeepCtime, file_system_kind(*type).name) != kKeepCtime.end();
}

bool lies_behind(const FileIdentity& identity, WallTime now) {
  return identity.ctime_ns <
         std::chrono::nanoseconds((now - kCoarsestTick).time_since_epoch()).count();
}

bool is_telling(const FileSystem& files, const std::string& path, const FileIdentity& identity,
                WallTime now) {
  return lies_behind(identity, now) && keeps_ctime(files, path);
}

}  // namespace evalcar::tasks
