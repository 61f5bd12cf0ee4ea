// One checkpoint's folder: what was seen of it at earlier looks, and what a new one tells.
//
// A folder at rest costs one `stat`, and one for each file that its verdicts rest on; another is
// looked at as a whole, two levels deep.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/watch/completeness.h"
#include "agent/watch/content.h"
#include "agent/watch/folder_names.h"
#include "agent/watch/kind_look.h"
#include "agent/watch/neighbour.h"
#include "agent/watch/notifier.h"
#include "agent/watch/rewrite_watch.h"
#include "agent/watch/sighting.h"
#include "agent/watch/watch_options.h"
#include "store/base/clock.h"
#include "store/base/file_system.h"
#include "store/checkpoint/layout.h"
#include "store/state/types.h"

namespace evalcar::watch {

/// Reads a folder's layout: checkpoint::inspect_layout() but in tests.
using Inspect =
    std::function<Result<checkpoint::LayoutReport>(const FileSystem&, const std::string& dir)>;

/// What a folder shares with the others of its output directory; for the time of one call.
struct FolderSurroundings {
  const FileSystem& files;
  const Clock& clock;
  Notifier& notifier;
  const WatchOptions& options;
  const Inspect& inspect;
  Place place = Place::kUnknown;
  /// What was complete in it before its first look here.
  const std::map<checkpoint::WeightsKind, KnownContent>& earlier;
  /// A checkpoint with a higher step is complete, and a file of it is not older than that.
  std::function<bool(std::int64_t written_after_ns)> newer_complete;
  /// The whole files of the next higher step that has some of that kind and layout; may be null.
  std::function<const WholeKind*(checkpoint::WeightsKind, checkpoint::Layout)> newer;
  /// Another folder has whole files of that kind with the same small ones.
  std::function<bool(checkpoint::WeightsKind, const WholeKind&)> has_twin;
  /// Of all that was complete in this directory.
  const std::map<checkpoint::WeightsKind, CommonFiles>& common;
};

/// What a look at a folder says besides what it tells.
struct FolderLook {
  std::string silent;      ///< why the file system does not answer: nothing was concluded; else ""
  bool removed = false;    ///< the folder is not there any more
  bool news_kept = false;  ///< what is to be known of it after a restart is another
};

/// Not thread-safe.
class CheckpointFolder {
 public:
  CheckpointFolder(std::int64_t step, std::string name, MonotonicTime now)
      : step_(step),
        name_(std::move(name)),
        changed_at_(now),
        glances_(static_cast<std::size_t>(step)) {}

  /// Before the first look: what an earlier process, or an earlier folder of that name, left.
  void remember(const state::UnfinishedFolder& unfinished) { rewrite_.remember(unfinished); }
  /// It came while its directory was watched. If it has no weights at the first look, all of it is
  /// of a save that began then.
  void came_while_watched() { seen_from_the_beginning_ = true; }
  /// Why nothing in it may be looked at; "": it may. Another reason makes everything of it new.
  void refuse(std::string why);
  /// Two questions instead of a look at a folder at rest: has it a new name, and is one of the
  /// files that its verdicts rest on another, the next one at each call. True: look() is to tell;
  /// also now and then though nothing differs.
  bool glance(const FileSystem& files, const Clock& clock, const std::string& output_dir);
  /// Looks, and appends to `out` what changed.
  FolderLook look(const FolderSurroundings& around, std::vector<Sighting>& out);
  /// The folder is gone: so is every kind that was told of. Of one that was not looked at yet it is
  /// told that it came.
  void tell_gone(const std::string& output_dir, std::vector<Sighting>& out) const;
  void unwatch(Notifier& notifier);
  /// It, or a folder in it, is watched and one of these.
  bool watches_any_of(const std::set<std::string>& folders) const;

  const std::string& name() const { return name_; }
  /// It was not looked at yet.
  bool fresh() const { return kinds_.empty(); }
  /// It has a verdict that time alone may change.
  bool unsettled() const { return unsettled_; }
  /// Something of it is being written, as far as one can tell.
  bool waits() const;
  /// When we last saw that something in it moved.
  MonotonicTime changed_at() const { return changed_at_; }
  /// When the last look began at the end of which each of its kinds had a verdict.
  MonotonicTime judged_at() const { return judged_at_; }
  /// One of its kinds is complete, and a file of that is not older.
  bool complete_since(std::int64_t written_after_ns) const;
  /// Its files, as of the last look, if they are whole; complete or not.
  const WholeKind* whole(checkpoint::WeightsKind kind) const;
  /// The last complete content of each kind that had one.
  std::map<checkpoint::WeightsKind, KnownContent> contents() const;
  /// What is to be known of it after a restart while it is not complete.
  state::UnfinishedFolder memory() const { return rewrite_.memory(); }

 private:
  struct KindMemory {
    Verdict verdict = Verdict::kGone;
    std::string reason;
    std::optional<WholeKind> whole;  ///< as of the last look
    KnownContent content;            ///< the last complete one
    std::vector<WatchedFile> files;  ///< of it
  };

  std::string path(const std::string& output_dir) const { return join_path(output_dir, name_); }
  bool unchanged_since_complete(const FolderSurroundings& around);
  bool is_going(const FolderSurroundings& around) const;
  FilesSeen look_at_all(const FolderSurroundings& around);
  void watch(const std::string& path, Notifier& notifier);
  bool see_rewrites(const FolderSurroundings& around, const FilesSeen& all);
  bool settle(const FolderSurroundings& around);
  RewriteWatch::TailOf tail_of(const FolderSurroundings& around) const;
  void judge(const FolderSurroundings& around, const FilesSeen& all, FolderLook& look,
             std::vector<Sighting>& out);
  void judge_kind(const FolderSurroundings& around, const FilesSeen& all,
                  const checkpoint::LayoutReport& report, const checkpoint::KindState& state,
                  std::vector<Sighting>& out);
  void judge_unreadable(const FolderSurroundings& around, const Error& error,
                        std::vector<Sighting>& out);
  bool written_meanwhile(const FolderSurroundings& around, const FilesSeen& all,
                         const std::vector<WatchedFile>& files) const;
  void tell_of_same_generation(const FolderSurroundings& around, checkpoint::Layout layout,
                               std::size_t from, std::vector<Sighting>& out);
  void tell(const FolderSurroundings& around, checkpoint::Layout layout,
            checkpoint::WeightsKind kind, Decision decision, std::vector<Sighting>& out);

  std::int64_t step_;
  std::string name_;
  std::string tree_signature_;  ///< of tree.h, two levels deep
  MonotonicTime changed_at_;    ///< when we last saw that differ
  MonotonicTime judged_at_{};
  FolderNames names_;
  std::uint64_t bytes_ = 0;
  std::int64_t written_ns_ = 0;  ///< when the newest of its files was
  bool unsettled_ = true;
  std::size_t glances_;  ///< begins at another number in each folder: not all are looked at at once
  bool seen_from_the_beginning_ = false;
  /// What it was at rest with was seen for longer than attributes are cached.
  bool stood_ = false;
  std::string refused_;
  RewriteWatch rewrite_;
  std::map<checkpoint::WeightsKind, KindMemory> kinds_;
  std::set<std::string> watched_;
};

}  // namespace evalcar::watch
