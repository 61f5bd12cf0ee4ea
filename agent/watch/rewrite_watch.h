// Are files that are there already written once more? A save writes each file once: those that were
// there before are of another one, until they are written again, too.
#pragma once

#include <chrono>
#include <cstdint>
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

/// Weights that were there before others were written again, and still are.
struct LeftFromBefore {
  std::string doubt;   ///< names the first of them; "" if there are none
  bool mixed = false;  ///< and some that were written since
};

/// Not thread-safe.
///
/// A file that became another inode, became shorter, or is as long as before and newer is written
/// for the second time.
class RewriteWatch {
 public:
  /// Weights that were complete before the first look; none are forgotten.
  void remember(const KnownContent& complete);
  /// What another process saw of this folder at its last look, before the first one here.
  void remember(const state::UnfinishedFolder& earlier);
  /// What is known now, for a process after this one. Its step is the caller's.
  state::UnfinishedFolder memory() const;
  /// One look at the folder. A file that at the look before was newer than the last file of a save
  /// (trainer_state.json, .metadata), or newer by more than `longest_pause` than one that was now
  /// written again, is of the save that writes now: it began before that look. True: memory() is
  /// another.
  bool see(const FilesSeen& now, std::chrono::milliseconds longest_pause);
  /// What is there now is complete: a rewrite of that is another one.
  void complete() { older_.files.clear(); }
  LeftFromBefore left_from_before(const KnownContent& content) const;

 private:
  using Identities = std::map<std::string, state::FileIdentity>;
  Identities last_;                          ///< files of weights, at the last look
  std::optional<std::int64_t> last_end_ns_;  ///< when a save ended, as that look saw it
  KnownContent older_;
};

}  // namespace evalcar::watch
