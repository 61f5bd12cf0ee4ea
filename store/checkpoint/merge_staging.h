// The temporary folder in which a merge is made: beside its target, which it becomes by one rename;
// or in the target, where that is an empty folder that no rename can replace (a mount point, a
// parent that may not be written to). Then the files move one by one, and what makes the folder one
// that is loaded comes last: config.json. A list of them lies in the temporary folder until all are
// there, so that a kill in between leaves nothing that is taken for a result, and the next merge to
// the same target removes it.
#pragma once

#include <string>
#include <vector>

#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::checkpoint {

/// Removed at its end unless it was published, and so are the folders around it that were made for
/// it. What a killed process left of one is removed by the next to the same target.
class MergeStaging {
 public:
  /// `output` is the target's absolute path; `files` outlives this.
  MergeStaging(FileSystem& files, std::string output);
  ~MergeStaging();
  MergeStaging(const MergeStaging&) = delete;
  MergeStaging& operator=(const MergeStaging&) = delete;

  const std::string& path() const { return path_; }

  /// Whether nothing lies in an existing target but what a killed merge left of itself.
  static bool is_free(const FileSystem& files, const std::string& output);

  /// Makes the folder and those around it, durably.
  Status make();
  /// Renames it to the target, which must be empty or absent unless `replace`. All files in it are
  /// synced already.
  Status publish(bool replace);

 private:
  Status publish_inside();
  void remove_leftovers();
  void remove_leftovers_inside();

  FileSystem& files_;
  std::string output_;
  std::string realm_;
  std::string path_;
  std::vector<std::string> made_;  // the outermost first
  bool inside_ = false;            // staged in the target
  bool published_ = false;
};

}  // namespace evalcar::checkpoint
