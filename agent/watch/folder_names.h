// Which names a checkpoint's folder had when it was looked at as a whole, and whether another one
// came since. What comes late may belong to the checkpoint: a processor's configuration from a
// callback behind the save, a chat template that somebody forgot.
//
// A folder at rest costs one `stat`: by one clock, a name that comes gives it another mtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "store/base/clock.h"
#include "store/base/file_system.h"

namespace evalcar::watch {

/// Not thread-safe.
class FolderNames {
 public:
  /// Before the folder is listed as a whole. `local`: its mtime is of this machine's clock, so that
  /// a listing long after it is known to have every name.
  void begin_look(const FileSystem& files, const Clock& clock, const std::string& folder,
                  bool local);
  /// What was listed, two levels deep.
  void take(const std::set<std::string>& names);
  /// One that was not there when the folder was looked at as a whole. Names that go say nothing:
  /// who deletes the folder takes other files first, and is not to be disturbed. Nor do files that
  /// went while somebody reads them, by the names that NFS and FUSE give those.
  bool any_new(const std::set<std::string>& names) const;
  /// The same of what the folder itself holds now; listed only where its mtime does not tell. False
  /// where it cannot be told.
  bool has_new(const FileSystem& files, const Clock& clock, const std::string& folder);

 private:
  bool is_new(const std::string& relative) const;
  bool see_mtime(const FileSystem& files, const Clock& clock, const std::string& folder);

  std::vector<std::size_t> hashes_;  ///< of the names, sorted: folders may have thousands
  std::int64_t mtime_ns_ = 0;        ///< the folder's own
  MonotonicTime mtime_seen_at_{};
  bool known_ = false;  ///< it was listed long enough after that
};

}  // namespace evalcar::watch
