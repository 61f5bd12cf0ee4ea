// What one checkpoint tells of another of its run: a trainer writes the same files into each.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/watch/content.h"
#include "store/checkpoint/layout.h"

namespace evalcar::watch {

/// A kind of weights whose files are whole, for others to be compared with.
struct WholeKind {
  std::string folder;  ///< name: "checkpoint-500"
  checkpoint::Layout layout = checkpoint::Layout::kHuggingFace;
  std::map<std::string, std::uint64_t> sizes;  ///< of all its files, by name
  bool trainer_state = false;                  ///< trainer_state.json is there, too
  std::int64_t newest_ns = 0;                  ///< when the last of the files was written
};

WholeKind whole_kind(const std::string& folder, checkpoint::Layout layout,
                     const std::vector<WatchedFile>& files, bool trainer_state);

/// The same files, as long as each other.
bool is_alike(const WholeKind& one, const WholeKind& other);
/// The same names besides weights.
bool has_same_small_files(const WholeKind& one, const WholeKind& other);

/// Why `kind`, whole as it is, must be what a delete has left: `newer`, of a higher step and the
/// same layout, has a small file that it lacks and was written after all of it, and a name in its
/// folder came or went since. "" if nothing says so.
///
/// @param folder_changed_ns  the folder's own time
std::string why_remnant(const WholeKind& kind, std::int64_t folder_changed_ns,
                        const WholeKind& newer);

/// What all complete checkpoints of a run have in common, as long as they are alike.
class CommonFiles {
 public:
  /// One of them. One that is unlike the others takes all meaning from them.
  void add(const WholeKind& complete);
  bool has_all(const WholeKind& kind) const;

 private:
  std::optional<WholeKind> first_;
  bool unlike_ = false;
};

/// How long a save must rest which has all that the complete ones of its run have.
std::chrono::milliseconds short_rest(std::chrono::milliseconds settle_time);

}  // namespace evalcar::watch
