// What write_file_atomically of a killed process leaves.
#pragma once

#include <string>

#include "store/base/file_system.h"

namespace evalcar {

/// Removes what write_file_atomically of processes that were killed left in this folder (not below
/// it): files that carry the pid of a process that is not there. A missing folder is success; what
/// cannot be removed is left for the next time.
void remove_stale_temporaries(FileSystem& files, const std::string& folder);

}  // namespace evalcar
