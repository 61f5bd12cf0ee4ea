// Which checkpoints `evalcar merge` means, and where the configuration comes from that they lack.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "agent/cli/merge_command.h"
#include "store/base/file_system.h"
#include "store/base/result.h"
#include "store/checkpoint/plan.h"

namespace evalcar::cli {

struct MergeSources {
  std::vector<std::string> folders;  ///< absolute, oldest first; as many as plans
  std::vector<checkpoint::Plan> plans;
  /// Has the configuration and tokenizer that the last checkpoint lacks; or empty.
  std::string model_folder;
  /// <run>/_evalcar/merged/<step>/<kind>; kind: regular, ema, average, average_ema, or what
  /// --state_dict_dirname names
  std::string default_output;
};

/// Finds them by --input_dir, --step, --merge, --type, --state_dict_dirname, --weights and
/// --model_name_or_class, and makes their plans. Notes for people go to `err`. Reads the
/// environment, for the place of the hub cache.
Result<MergeSources> find_merge_sources(const MergeOptions& options, const FileSystem& files,
                                        std::ostream& err);

/// The folder that --model_name_or_class means: `name` itself if it is a folder, else where the
/// hub's model of that id lies (`data_dir` may hold it; may be empty). Empty for no name and for a
/// class of transformers, which has no folder. Errors as checkpoint::find_model().
Result<std::string> find_given_model(const FileSystem& files, const std::string& name,
                                     const std::string& data_dir);

}  // namespace evalcar::cli
