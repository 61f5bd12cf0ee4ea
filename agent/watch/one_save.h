// Are the files of a checkpoint of one save? Nothing in them names it, and a trainer that is killed
// in the middle of a save and comes back to that step writes over what it left: for a while every
// file is whole, and they are of two saves. What tells is order, pauses, and what was seen.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "agent/watch/content.h"
#include "agent/watch/rewrite_watch.h"
#include "store/checkpoint/layout.h"

namespace evalcar::watch {

/// Nobody gave the file another time than that of its last change. Where times are of one clock.
bool has_own_time(const FileInfo& info);

/// How long after the end of one rank the weights of another may be written in the same save, where
/// ranks write side by side. A trainer that was killed needs longer to come back to the step.
std::chrono::milliseconds longest_pause_of_a_save(std::chrono::milliseconds settle_time);

/// What the trainer writes last is there, and not older than any file of `content`, or than any of
/// its weights. lmms-engine's rank 0 writes config.json last, without waiting for the other ranks.
bool ends_the_save(checkpoint::Layout layout, const KnownContent& content, const FilesSeen& all,
                   bool weights_alone);

/// The weights are certainly of one save, whatever was seen before: lmms-engine's ranks all wait
/// before each save and behind it, so that two which were at work at the same moment were in the
/// same one. Only where times are of one clock. False where files were copied with their times, or
/// weights lie further apart than `longest_pause`: then who wrote them kept another order.
bool ranks_saved_together(checkpoint::Layout layout, const std::vector<WatchedFile>& files,
                          const FilesSeen& all, std::chrono::milliseconds longest_pause);

/// Why whole weights may be of two saves, by the order in which their trainer writes and by the
/// pauses between their files; "" if nothing says so. A doubt and no proof: copying keeps no order,
/// and a rank may be slow. `files`: of the weights; `all`: of the folder, two levels deep.
std::string doubt_by_order(checkpoint::Layout layout, checkpoint::WeightsKind kind,
                           const std::vector<WatchedFile>& files, const FilesSeen& all,
                           std::chrono::milliseconds longest_pause);

/// Why EMA is no part of the save that wrote the regular weights beside it, in words; "": it may
/// be. lmms-engine goes on without it where it was switched off, or is not there yet, and leaves
/// the shards of the save before. Certain by the times alone: each rank has written all else in its
/// order, and EMA is none of that. A copy with times of its own is in that order by a rare chance.
std::string why_ema_was_left(checkpoint::Layout layout, checkpoint::WeightsKind kind,
                             const std::vector<WatchedFile>& files, const FilesSeen& all);

}  // namespace evalcar::watch
