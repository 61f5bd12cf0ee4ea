// Files that a person names for what a command writes: a page, a plot.
#pragma once

#include <string>
#include <string_view>

#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::cli {

/// Replaces a file at once, or makes it; a link is followed and stays. What is there and is no
/// regular file (a pipe, a device) is never replaced: it is written to.
Status write_named_file(FileSystem& files, const std::string& path, std::string_view content);

}  // namespace evalcar::cli
