// What a merged folder holds beside its weights: configuration, tokenizer, processor.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "store/base/file_system.h"
#include "store/base/result.h"
#include "store/checkpoint/merge.h"
#include "store/checkpoint/tie_config.h"

namespace evalcar::checkpoint {

struct SideFile {
  std::string folder;          ///< that it is taken from
  std::string name;            ///< may lead through one inner folder
  bool of_kept_model = false;  ///< Folder::is_kept_model
};

struct SideFiles {
  std::vector<SideFile> files;
  /// Folders that are called a tokenizer's and are none of the model's, each with the reason.
  std::vector<std::string> left_out;
};

/// The last checkpoint's own files, and from `side_file_fallback_dir` the groups (model_files.h)
/// that it has not: one from which nothing can be loaded (a template without a vocabulary) gives
/// way to the other folder's, whole. The evaluator chooses by the same rule. Each further tokenizer
/// of a processor, in a folder of its own, is chosen by itself. Each file can be opened: errors as
/// open_inside().
Result<SideFiles> find_side_files(const FileSystem& files, const MergeRequest& request);

/// One of them as it is written.
struct SideFileContent {
  std::string text;
  bool untied = false;      ///< a configuration that tied heads (or did not say) no longer does
  bool still_tied = false;  ///< one does, because its flag does more
};

/// What config.json of the merged folder says of ties. Absent where there will be none.
Result<std::optional<TieConfig>> read_tie_config(const FileSystem& files,
                                                 const MergeRequest& request);

/// config.json gets the dtype of the cast, for the model and its parts, and ties no longer what has
/// `own_heads`, which differ from every embedding; everything else is as it is. kCorruption if it
/// is larger than 256 MiB, or a config.json that has to be changed is no JSON object.
Result<SideFileContent> side_file_content(const FileSystem& files, const SideFile& file,
                                          const MergeRequest& request,
                                          const std::vector<std::string>& own_heads);

}  // namespace evalcar::checkpoint
