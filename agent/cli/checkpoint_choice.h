// Which checkpoints a path on the command line means: a checkpoint, one of its inner folders, a
// link to one, or the run folder around many.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "store/base/file_system.h"
#include "store/base/result.h"
#include "store/checkpoint/layout.h"

namespace evalcar::cli {

/// The real path of a folder that was named on the command line; kNotFound says what was
/// `expected`.
Result<std::string> real_checkpoint_path(const FileSystem& files, const std::string& path,
                                         const std::string& expected);

/// A folder that was named on the command line, as it is to be looked at.
struct NamedFolder {
  std::string path;  ///< absolute
  /// The folder of shards in it that was named itself, where `path` is the checkpoint around it; or
  /// empty.
  std::string shard_folder;
};

/// What names of checkpoints are looked for in a run folder, in this order: `pattern` if it is not
/// empty, else the Hugging Face Trainer's, torchtitan's and accelerate's.
std::vector<std::string> checkpoint_patterns(const std::string& pattern);

/// The step that a checkpoint's folder has in its name.
std::optional<std::int64_t> step_in_name(const std::string& folder,
                                         const std::vector<std::string>& patterns);

/// The real path; but under the name that was given where only that one tells a step (a link named
/// checkpoint-5 to a folder of another name), and the checkpoint around it where a folder of its
/// shards was named. kNotFound says what was `expected`.
Result<NamedFolder> find_named_folder(const FileSystem& files, const std::string& path,
                                      const std::vector<std::string>& patterns,
                                      const checkpoint::LayoutOptions& layout,
                                      const std::string& expected);

/// Sets that only the shard folder that was named counts. EMA's makes it the EMA weights;
/// kInvalidArgument if EMA weights are asked for of the usual folder of the regular ones.
Status select_shard_folder(const std::string& name, checkpoint::LayoutOptions& layout,
                           checkpoint::WeightsKind& weights);

/// The step of a checkpoint by its folder's name or, of a folder within one (DeepSpeed's, a named
/// adapter), by the checkpoint's around it.
std::optional<std::int64_t> step_of_checkpoint(const FileSystem& files, const std::string& folder,
                                               const std::vector<std::string>& patterns);

/// A sentence if the folder is of one step by its name and of another one by the trainer's own
/// record, or empty.
std::string two_steps(const FileSystem& files, const std::string& folder,
                      const std::vector<std::string>& patterns);

/// Which --pattern chooses the checkpoints of a run folder that has some of names of its own, as a
/// sentence's end, or empty.
std::string pattern_hint(const FileSystem& files, const std::string& run);

/// kInvalidArgument unless --pattern is empty or a folder's name with one {step}.
Status check_pattern(const std::string& pattern);

/// kInvalidArgument unless --state_dict_dirname is empty or one folder's name; slashes at its end
/// go.
Status check_dirname(std::string& name);

/// As find_named_folder(), where a folder of shards may have --state_dict_dirname's name, too.
Result<NamedFolder> find_input(const FileSystem& files, const std::string& path,
                               const std::vector<std::string>& patterns,
                               const std::string& state_dict_dirname,
                               checkpoint::LayoutOptions layout, const std::string& expected);

/// The checkpoints in a run folder, newest first.
struct StepsOfRun {
  std::string pattern;  ///< of their names
  std::vector<std::int64_t> steps;

  std::string name(std::int64_t step) const;
};

/// Those of the first pattern that any folder's name fits.
Result<StepsOfRun> steps_of_run(const FileSystem& files, const std::string& run,
                                const std::vector<std::string>& patterns);

/// That a folder is no checkpoint, and no run's with any named so (`pattern` as given):
/// kUnavailable, with the way to those of other names.
Error no_checkpoints(const FileSystem& files, const std::string& folder,
                     const std::string& pattern);

/// What a checkpoint's lack of the shard folder that was asked for means: one of a layout that has
/// none will never get it, which is kInvalidArgument; any other error as it is.
Error explain_missing(const FileSystem& files, const std::string& folder, Error error,
                      const checkpoint::LayoutOptions& layout);

/// Complete checkpoints of a run, and why newer ones are not among them.
struct CompleteCheckpoints {
  std::vector<std::string> folders;   ///< absolute, oldest first
  std::vector<std::string> left_out;  ///< each with its folder's path and the reason, newest first
};

/// The newest one that holds complete weights of that kind, or all of them. One without a
/// configuration counts only if none with one does: in an unfinished one it may still be to come.
CompleteCheckpoints complete_checkpoints(const FileSystem& files, const std::string& run,
                                         const StepsOfRun& steps, checkpoint::WeightsKind weights,
                                         const checkpoint::LayoutOptions& layout, bool all);

/// <run>/_evalcar/merged/<step>/<kind>: where what is merged of a checkpoint goes by default. The
/// run is the folder around the outermost checkpoint that `folder` lies in, or `folder` itself if
/// it is a run's with the final model (`_evalcar` may lie beside it: home_place.h); without a step
/// the checkpoint's name stands in its place. A checkpoint
/// within one (a named adapter) has its name before the kind. kInvalidArgument: that `_evalcar` is
/// another training's.
Result<std::string> merged_place(const FileSystem& files, const std::string& folder,
                                 const std::vector<std::string>& patterns, const std::string& kind);

}  // namespace evalcar::cli
