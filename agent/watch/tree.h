// A checkpoint's folder as a whole: has anything in it moved since the last look?
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "store/base/file_system.h"

namespace evalcar::watch {

/// Of one folder: a bound on the work that a huge one can cause.
inline constexpr std::size_t kMaxFolderEntries = 100'000;

struct Tree {
  std::string signature;  ///< changes when any name, size or mtime does; without our own link
  std::uint64_t bytes = 0;
  std::set<std::string> names;            ///< of all entries, relative to it
  std::set<std::string> folders;          ///< below it, some dozens at most
  std::map<std::string, FileInfo> files;  ///< regular ones, by their path relative to it
};

/// Looks at `path` and what is below it, `depth` levels deep. What cannot be read is part of the
/// signature.
Tree look_at_tree(const FileSystem& files, const std::string& path, int depth);

}  // namespace evalcar::watch
