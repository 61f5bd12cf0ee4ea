// Where nothing may be written beside a running trainer.
#pragma once

#include <string>
#include <string_view>

#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::checkpoint {

/// The absolute path, without links, of a file or folder that need not exist yet. kInvalidArgument
/// if it leads through ".." of a folder that is not there.
Result<std::string> resolve_output(const FileSystem& files, const std::string& path);

/// The name of a checkpoint in the folder, by which that is a run's whatever else lies in it; ""
/// if it holds none. One that has the name that the Hugging Face Trainer, torchtitan or accelerate
/// gives; or that ends in a number ("epoch_3") and is a whole one, not a part of a checkpoint.
std::string checkpoint_in_run(const FileSystem& files, const std::string& folder);

/// Whether a folder is a run's, which may hold the final model, too: it holds a checkpoint, or our
/// own folder from when it did.
bool is_run_folder(const FileSystem& files, const std::string& folder);

/// The outermost folder, `folder` itself or one around it, that is a checkpoint by its name or its
/// content; `folder` if none is. What lies around it is nobody's checkpoint. `folder` is absolute.
std::string outermost_checkpoint(const FileSystem& files, const std::string& folder);

/// What happens at the output's path.
enum class OutputUse {
  kReplaced,  ///< a file or folder appears there by a rename
  kFilled,    ///< a folder, into which files are put
};

/// Refuses (kInvalidArgument, with a hint) an output inside a checkpoint, told by its name or its
/// content, or with a name that begins with "checkpoint" in a folder that holds checkpoints.
///
/// A trainer deletes the checkpoints with the oldest time of change, so a file put into one gets
/// another one deleted; its recursive delete fails if something appears meanwhile; and it counts,
/// parses and resumes whatever begins with "checkpoint" beside its checkpoints. A run folder into
/// which the final model was saved (is_run_folder) is no checkpoint.
///
/// torchtitan looks for "step-N" anywhere in a name, and resumes from and purges what has it, so
/// none beside its step-N. Nothing at all goes into a folder that is_kept_by_accelerate().
Status check_output_place(const FileSystem& files, const std::string& path, OutputUse use);

/// Whether accelerate, with automatic_checkpoint_naming, takes every entry of the folder for a
/// checkpoint of its own and the training dies of a name without a number: a folder named
/// `checkpoints` with a `checkpoint_<n>` in it, or whose checkpoints `pattern` calls so; and any
/// folder with a `checkpoint_<n>` that accelerate wrote. It need not exist.
bool is_kept_by_accelerate(const FileSystem& files, const std::string& folder,
                           std::string_view pattern);

}  // namespace evalcar::checkpoint
