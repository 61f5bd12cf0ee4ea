// What a run's database knows of a checkpoint whose folder is gone.
#pragma once

#include <string>

#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::http {

/// Whether the newest run of the checkpoint's output directory has evaluations of this kind of
/// weights of it, in whatever state. `checkpoint`: the real path that its folder had. One short
/// look on a read-only connection, from any thread; false where there is no such database.
/// kUnavailable: it cannot be read now.
Result<bool> knows_checkpoint(const FileSystem& files, const std::string& database,
                              const std::string& checkpoint, const std::string& kind);

}  // namespace evalcar::http
