// What statfs says of a file system, as far as a watcher and a database must know it.
#pragma once

#include <cstdint>
#include <string>

namespace evalcar {

struct FileSystemKind {
  std::string name;  ///< "ext4", "NFS", "FUSE", …; "type 0x1234" where it is not known
  /// Only this machine's kernel writes to it: inotify tells of every change, what stat says is of
  /// now, and a call comes back. Of a network file system, of FUSE and of what is not known, none
  /// of that holds.
  bool local = false;
  bool known = false;  ///< false: `name` is only its number

  /// Whether SQLite's locks and shared memory can be trusted there. Of a type that is not known
  /// nothing speaks against it.
  [[nodiscard]] bool can_hold_database() const { return local || !known; }
};

/// By the f_type of statfs (FileSystem::file_system_type): linux/magic.h, and for what lives
/// outside the kernel the file systems' own headers.
FileSystemKind file_system_kind(std::uint64_t type);

}  // namespace evalcar
