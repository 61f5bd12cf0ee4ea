// Are the files of a checkpoint of one save? Nothing in them names it, and a trainer that is killed
// in the middle of a save and comes back to that step writes over what it left: for a while every
// file is whole, and they are of two saves. What tells is order, pauses, and what was seen.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/watch/content.h"
#include "store/base/file_system.h"
#include "store/checkpoint/layout.h"

namespace evalcar::watch {

/// Files by their path relative to the checkpoint.
using FilesSeen = std::map<std::string, FileInfo>;

/// Notices that files which are there already are written once more. Not thread-safe.
///
/// A save writes each file once. One that became another inode, became shorter, or is as long as
/// before and newer is written for the second time.
class RewriteWatch {
 public:
  /// Weights that were complete before the first look; none are forgotten.
  void remember(const KnownContent& complete);
  /// One look at the folder. A file that at the look before was newer than the last file of a save
  /// (trainer_state.json, .metadata), or newer by more than `longest_pause` than one that was now
  /// written again, is of the save that writes now: it began before that look.
  void see(const FilesSeen& now, std::chrono::milliseconds longest_pause);
  /// What is there now is complete: a rewrite of that is another one.
  void complete() { older_.files.clear(); }
  /// Which file was there before others were written again, and still is; "" if there is none.
  std::string doubt_of_one_save(const KnownContent& content) const;

 private:
  using Identities = std::map<std::string, state::FileIdentity>;
  Identities last_;                          ///< files of weights, at the last look
  std::optional<std::int64_t> last_end_ns_;  ///< when a save ended, as that look saw it
  KnownContent older_;
};

/// How long after the end of one rank the weights of another may be written in the same save, where
/// ranks write side by side. A trainer that was killed needs longer to come back to the step.
std::chrono::milliseconds longest_pause_of_a_save(std::chrono::milliseconds settle_time);

/// What the trainer writes last is there, and not older than any file of `content`, or than any of
/// its weights. lmms-engine's rank 0 writes config.json last, without waiting for the other ranks.
bool ends_the_save(checkpoint::Layout layout, const KnownContent& content, const FilesSeen& all,
                   bool weights_alone);

/// Why whole weights may be of two saves, by the order in which their trainer writes and by the
/// pauses between their files; "" if nothing says so. A doubt and no proof: copying keeps no order,
/// and a rank may be slow. `files`: of the weights; `all`: of the folder, two levels deep.
std::string doubt_of_one_save(checkpoint::Layout layout, checkpoint::WeightsKind kind,
                              const std::vector<WatchedFile>& files, const FilesSeen& all,
                              std::chrono::milliseconds longest_pause);

}  // namespace evalcar::watch
