// The files of a lease's folder.
#pragma once

#include <string>
#include <vector>

#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::stage {

/// Adds the paths of all regular files below `dir`, a few folders deep, to `out`. Errors as
/// FileSystem::list()'s.
Status list_files(const FileSystem& files, const std::string& dir, std::vector<std::string>& out);

/// Syncs `dir` and all folders below it, those that are furthest down first, so that the names in
/// them outlive a power cut. Errors as FileSystem::sync_directory()'s.
Status sync_folders(FileSystem& files, const std::string& dir);

}  // namespace evalcar::stage
