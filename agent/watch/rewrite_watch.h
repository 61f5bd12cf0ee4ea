// Are files that are there already written once more? A save writes each file once: those that were
// there before are of another one, until they are written again, too.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/watch/content.h"
#include "store/base/file_system.h"
#include "store/state/types.h"

namespace evalcar::watch {

/// Files by their path relative to the checkpoint.
using FilesSeen = std::map<std::string, FileInfo>;

/// The time of what a trainer writes behind all weights (trainer_state.json, .metadata); nullopt if
/// nothing is there.
std::optional<std::int64_t> end_of_save(const FilesSeen& all);

/// Of the last bytes of a file's first `size`; absent where it cannot be read.
std::optional<std::uint64_t> hash_of_tail(const FileSystem& files, const std::string& path,
                                          std::uint64_t size);

/// Weights that were there before others were written again, and still are.
struct LeftFromBefore {
  std::string doubt;   ///< names the first of them; "" if there are none
  bool mixed = false;  ///< and others were written again, with another content
};

/// Not thread-safe.
///
/// A file that became another inode, became shorter, or is as long as before and newer is written
/// for the second time; and one that is longer than it was, if it was complete, or what stood at
/// its end is another: a save that goes on adds to it.
class RewriteWatch {
 public:
  /// A hash of the last bytes of a file's first `size`; absent where they are not asked for.
  using TailOf =
      std::function<std::optional<std::uint64_t>(const std::string& path, std::uint64_t size)>;
  /// Weights that were complete before the first look; none are forgotten.
  void remember(const KnownContent& complete_before);
  /// What another process saw of this folder at its last look, before the first one here.
  void remember(const state::UnfinishedFolder& earlier);
  /// What is known now, for a process after this one. Its step is the caller's.
  state::UnfinishedFolder memory() const;
  /// One look at the folder. A file that at the look before was newer than the last file of a save
  /// (trainer_state.json, .metadata), or newer by more than `longest_pause` than one that was now
  /// written again, is of the save that writes now: it began before that look. True: memory() is
  /// another.
  bool see(const FilesSeen& now, std::chrono::milliseconds longest_pause, const TailOf& tail_of);
  /// What stands at the end of the files of that look, for the next one: of those that changed,
  /// some at a time. True: memory() is another.
  bool note_tails(const TailOf& tail_of);
  /// What is there now is complete: a rewrite of that is another one.
  void complete() {
    older_.files.clear();
    older_tails_.clear();
  }
  /// These weights are complete as they are: no save adds to one of them.
  void complete(const KnownContent& weights);
  /// Weights lay in this folder of the checkpoint, now or at an earlier look.
  bool saw_weights_in(const std::string& folder) const;
  LeftFromBefore left_from_before(const KnownContent& content, const TailOf& tail_of) const;

 private:
  using Identities = std::map<std::string, state::FileIdentity>;
  Identities last_;                          ///< files of weights, at the last look
  std::optional<std::int64_t> last_end_ns_;  ///< when a save ended, as that look saw it
  KnownContent older_;
  using Tails = std::map<std::string, std::uint64_t>;
  bool is_another(const state::FileIdentity& older, const TailOf& tail_of) const;
  Identities whole_;   ///< files of complete weights, as they were then
  Tails tails_;        ///< of files in last_
  Tails older_tails_;  ///< of files in older_
};

}  // namespace evalcar::watch
