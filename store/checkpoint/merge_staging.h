// The temporary folder in which a merge is made, beside its target.
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

  /// Makes the folder and those around it, durably.
  Status make();
  /// Renames it to the target, which must be empty or absent unless `replace`. All files in it are
  /// synced already.
  Status publish(bool replace);

 private:
  void remove_leftovers();

  FileSystem& files_;
  std::string output_;
  std::string realm_;
  std::string path_;
  std::vector<std::string> made_;  // the outermost first
  bool published_ = false;
};

}  // namespace evalcar::checkpoint
