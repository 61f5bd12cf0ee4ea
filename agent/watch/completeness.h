// May this kind of weights be evaluated now? The decision, apart from all reading of disks.
//
// A layout's own structure (store/checkpoint) tells whether the files are whole. What remains is
// time: whether the writer may still add or replace something.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "agent/watch/content.h"
#include "store/checkpoint/layout.h"

namespace evalcar::watch {

enum class Verdict {
  kWaiting,     ///< being written, as far as one can tell; `reason` says what is missing
  kComplete,    ///< evaluate it
  kNotStarted,  ///< EMA folder empty, or of another save, and the writer is done: there is no EMA
                ///< at this step (yet)
  kTorn,        ///< incomplete, and unchanged for the settle time; it may still be finished later
  kOvertaken,   ///< torn, and a newer checkpoint is complete: nobody need wait for it any more
  kUnreadable,  ///< not a layout that is known, and unchanged for the settle time
  kGone,        ///< the folder was removed
};

struct Evidence {
  checkpoint::Layout layout = checkpoint::Layout::kHuggingFace;
  checkpoint::Completeness completeness = checkpoint::Completeness::kAbsent;
  std::string reason;          ///< of the layout's reader
  bool writer_done = false;    ///< lmms-engine: all dataloader_state files are whole
  bool trainer_state = false;  ///< Hugging Face: trainer_state.json, its last file, is there
  /// But with a time that was set, and in a copy it need not be the last.
  bool trainer_state_is_copied = false;
  /// A checkpoint with a higher step is complete, and not older than what lies in this folder: this
  /// one's writer moved on.
  bool newer_complete = false;
  /// The same of these weights alone, and they were written here: no copy that keeps times.
  bool newer_written_later = false;
  bool marker_wanted = false;  ///< watch.end_marker is set
  bool marker_there = false;
  bool rewritten = false;              ///< files of another save were seen in this folder before
  Replaced replaced = Replaced::kAll;  ///< how much of the weights differs from those
  /// What was seen then may have been what a file server's client remembered of it.
  bool before_may_be_stale = false;
  bool rewrite_done = true;  ///< what this trainer writes last is not older than what changed
  std::string left;          ///< why these weights are no part of this save; "": they may be
  std::string doubt;         ///< why the files may be of two saves; "" if nothing says so
  /// That is beyond doubt: some were seen to be written again, others not, and no end of a save.
  bool mixed = false;
  std::chrono::milliseconds unchanged_for{};  ///< by our own observation, not by file times
  std::chrono::milliseconds settle_time{};
  /// Seen from its beginning on, it has the same files as all complete ones of its run: nothing
  /// more of this save is to come. How long its rest must be then; absent: the settle time.
  std::optional<std::chrono::milliseconds> rest_of_whole_save;
};

struct Decision {
  Verdict verdict = Verdict::kWaiting;
  std::string reason;
};

Decision decide(const Evidence& evidence);

}  // namespace evalcar::watch
