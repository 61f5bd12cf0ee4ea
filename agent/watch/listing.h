// Which of the entries of an output directory are folders of checkpoints.
//
// Folders count if their name is the pattern with a canonical whole number; a link counts if it
// leads to a folder in the output directory that does not count by itself, and is refused where it
// leads out.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::watch {

/// An entry whose name counts.
struct ListedFolder {
  std::int64_t step = 0;
  std::string name;
  /// It could not be asked what it is: it has neither come nor gone.
  bool unclear = false;
  std::string refused;  ///< why nothing in it may be looked at; else ""
};

/// Not thread-safe.
class Listing {
 public:
  /// `files` must outlive it.
  Listing(const FileSystem& files, std::string output_dir, std::string pattern);
  /// The folders that are there now, in no order. Names that begin like a checkpoint's and count
  /// for nothing are told of in the log, once and the first ones.
  Result<std::vector<ListedFolder>> read();

 private:
  enum class Entry { kFolder, kUnclear, kNone };
  Entry judge(const DirectoryEntry& entry, std::string& refused);
  void ignore(const std::string& name, const std::string& why);

  const FileSystem& files_;
  std::string output_dir_;
  std::string pattern_;
  std::set<std::string> ignored_;  ///< names that were told of
};

}  // namespace evalcar::watch
