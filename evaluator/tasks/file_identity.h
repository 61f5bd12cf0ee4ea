// How a file that was read is known again without reading it.
//
// Names and dates prove nothing: a file can be rewritten in place and given its old mtime (rsync
// and cp -p do that). The ctime cannot be set by anyone; the kernel moves it with every change of
// content, name, mode or links. So equal device, inode, size, mtime and ctime mean equal content,
// where the file system keeps a ctime of its own, and unless the last change is so young that
// another one might bear the same time.
#pragma once

#include <cstdint>
#include <string>

#include "store/base/clock.h"
#include "store/base/file_system.h"

namespace evalcar::tasks {

struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size_bytes = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t ctime_ns = 0;
  bool operator==(const FileIdentity&) const = default;
};

FileIdentity identity_of(const FileInfo& info);

/// Whether the file system of `path` moves a file's ctime with each change.
bool keeps_ctime(const FileSystem& files, const std::string& path);
/// The ctime lies behind `now`, so that a change from then on has another one (a clock may tick in
/// whole seconds).
bool lies_behind(const FileIdentity& identity, WallTime now);
/// The identity changes with whatever is written to the file from `now` on: both of the above.
bool is_telling(const FileSystem& files, const std::string& path, const FileIdentity& identity,
                WallTime now);

}  // namespace evalcar::tasks
