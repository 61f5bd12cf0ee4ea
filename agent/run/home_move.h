// Our folder at its place (store/checkpoint/home_place.h), and on its way there from where it was
// before accelerate began to save.
#pragma once

#include <string>

#include "store/base/file_system.h"
#include "store/checkpoint/home_place.h"

namespace evalcar::run {

using checkpoint::HomePlace;

/// kInvalidArgument, with a hint: our folder cannot lie there, since it is that of another output
/// directory, or on another file system than the checkpoints (no hard link leads there).
Status check_home_place(const FileSystem& files, const std::string& output_dir,
                        const HomePlace& place);

/// Writes whose folder it is, if it lies beside. The folder is there.
Status sign_home(FileSystem& files, const HomePlace& place);

/// Brings a folder of ours that lies in the directory to the place beside it, by renames; where it
/// was cut short, the next call goes on. Nobody may use it meanwhile. Success: nothing lies in the
/// directory (any more). Else it names what stands against it.
Status move_home_beside(FileSystem& files, const std::string& output_dir, const HomePlace& place);

}  // namespace evalcar::run
