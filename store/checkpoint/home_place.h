// Where evalcar's own folder lies for an output directory: `_evalcar` in it, but not where that
// would break the trainer. One rule for whoever writes or reads there: the agent, merge, status,
// doctor.
//
// accelerate with automatic_checkpoint_naming keeps `<project>/checkpoints/checkpoint_<i>` and
// takes a number out of the name of every entry of `checkpoints/`, whatever it is: a name without a
// digit ends save_state(total_limit=…) and load_state() with an IndexError, one with a digit counts
// in its rotation. There our folder is `<project>/_evalcar`; a file `watched` in it names the
// folder that it is for, so that it is found again and not taken for that of `<project>` itself.
#pragma once

#include <string>
#include <string_view>

#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::checkpoint {

/// In a folder of ours: the name of the output directory that it is for, where it lies beside that.
inline constexpr std::string_view kWatchedFile = "watched";
/// In a folder of ours that an agent has used: the mark of its run.
inline constexpr std::string_view kRunMarkFile = "run_id";

struct HomePlace {
  std::string path;     ///< of our folder
  std::string watched;  ///< name of the output directory beside it; "" where it lies in that
  bool beside() const { return !watched.empty(); }
};

/// Makes nothing. The directory need not exist. `pattern`: of its checkpoints' names.
HomePlace home_place(const FileSystem& files, const std::string& output_dir,
                     std::string_view pattern);

/// Where our folder would lie inside of the directory.
std::string home_within(const std::string& output_dir);

/// Which output directory a folder of ours says it is for; "" where it lies in that.
std::string home_signed_for(const FileSystem& files, const std::string& home);

/// kInvalidArgument, with a hint: the folder at that place is that of another output directory.
Status check_home_owner(const FileSystem& files, const std::string& output_dir,
                        const HomePlace& place);

}  // namespace evalcar::checkpoint
