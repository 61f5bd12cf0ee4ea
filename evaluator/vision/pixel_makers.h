// Which program and libraries turn a picture file into pixels.
#pragma once

#include <string>

#include "store/base/file_system.h"

namespace evalcar::vision {

/// Tells two builds of this program and of its decoders apart: size, inode and mtime of the files
/// that their code is loaded from. Pixels that another build made may be other pixels.
std::string pixel_makers(const FileSystem& files);

}  // namespace evalcar::vision
