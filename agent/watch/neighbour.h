// What one checkpoint tells of another of its run: a trainer writes the same small files into each.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/watch/content.h"
#include "store/checkpoint/layout.h"

namespace evalcar::watch {

/// A kind of weights that is complete, for others to be compared with.
struct CompleteKind {
  std::string folder;  ///< name: "checkpoint-500"
  checkpoint::Layout layout = checkpoint::Layout::kHuggingFace;
  std::set<std::string> small_files;  ///< names of all files but weights
  std::int64_t newest_ns = 0;         ///< when the last of the files was written
};

CompleteKind complete_kind(const std::string& folder, checkpoint::Layout layout,
                           const std::vector<WatchedFile>& files);

/// The first small file that `other` has and `files` do not. The layouts must be the same: another
/// one has other files, and nothing is lacking.
std::optional<std::string> lacks(checkpoint::Layout layout, const std::vector<WatchedFile>& files,
                                 const CompleteKind& other);

/// Why `files`, whole as they are, must be what a delete has left: `newer`, of a higher step, has a
/// file that they lack, was written after all of them, and something was taken out of their folder
/// since. "" if nothing says so.
///
/// @param folder_changed_ns  the folder's own time: when a name in it came or went
std::string why_remnant(checkpoint::Layout layout, const std::vector<WatchedFile>& files,
                        std::int64_t folder_changed_ns, const CompleteKind& newer);

}  // namespace evalcar::watch
