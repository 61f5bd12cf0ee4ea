// Where our folder lies for an output directory: `_evalcar` in it, but not where that would break
// the trainer.
//
// accelerate with automatic_checkpoint_naming keeps `<project>/checkpoints/checkpoint_<i>` and
// takes a number out of the name of every entry of `checkpoints/`, whatever it is: a name without a
// digit ends save_state(total_limit=…) and load_state() with an IndexError, one with a digit counts
// in its rotation. There our folder is `<project>/_evalcar`; a file `watched` in it names the
// folder that it is for, so that it is found again and not taken for that of `<project>` itself.
#pragma once

#include <string>

#include "store/base/file_system.h"

namespace evalcar::run {

struct HomePlace {
  std::string path;     ///< of our folder
  std::string watched;  ///< name of the output directory beside it; "" where it lies in that
  bool beside() const { return !watched.empty(); }
};

/// Whether accelerate takes every entry of the directory for a checkpoint of its own: a folder
/// named `checkpoints` with a `checkpoint_<n>` in it, or whose checkpoints the pattern calls so;
/// and any folder with a `checkpoint_<n>` that accelerate wrote.
bool is_kept_by_accelerate(const FileSystem& files, const std::string& output_dir,
                           const std::string& pattern);

/// Makes nothing. The directory need not exist.
HomePlace home_place(const FileSystem& files, const std::string& output_dir,
                     const std::string& pattern);

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
