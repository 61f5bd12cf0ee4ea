// Where a database may lie.
#pragma once

#include <string>

#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::state {

/// kUnsupported, with what to set, for a folder on a network file system or FUSE: SQLite's locks
/// and its shared memory cannot be trusted there. Else errors as FileSystem::file_system_type().
Status check_database_place(const FileSystem& files, const std::string& folder);

}  // namespace evalcar::state
