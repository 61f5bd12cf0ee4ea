// Which life of an output directory this is. The inode alone does not tell: a directory that was
// removed and made anew often has the old one's. So a random mark lies in our folder, and in the
// run's row; where our folder was deleted, checkpoints that are known tell.
#pragma once

#include <string>
#include <vector>

#include "store/base/file_system.h"
#include "store/state/types.h"

namespace evalcar::run {

/// `home` is the `_evalcar` folder. "" if there is no mark that is whole.
std::string read_mark(const FileSystem& files, const std::string& home);
/// Writes it, atomically.
Status write_mark(FileSystem& files, const std::string& home, const std::string& mark);
/// 32 hex digits.
std::string new_mark();

/// A checkpoint folder is there.
bool holds_checkpoints(const FileSystem& files, const std::string& output_dir,
                       const std::string& pattern);
/// A file of these checkpoints is there, with the inode, size and mtime that it had.
bool holds_content(const FileSystem& files, const std::string& output_dir,
                   const std::vector<state::KnownKind>& known);

}  // namespace evalcar::run
