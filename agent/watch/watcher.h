// Looks at one output directory and tells what changed: which checkpoints there are, and for each
// kind of weights whether it may be evaluated.
//
// Hints (inotify) only say where to look first; every poll looks everywhere, the disk is the truth,
// and what is remembered of earlier looks only makes it wait. Nothing is written, and nothing is
// held open. Where the output directory cannot be read, or its file system does not answer, nothing
// is concluded.
#pragma once

#include <chrono>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/watch/checkpoint_folder.h"
#include "agent/watch/content.h"
#include "agent/watch/listing.h"
#include "agent/watch/look_pace.h"
#include "agent/watch/notifier.h"
#include "agent/watch/sighting.h"
#include "agent/watch/watch_options.h"
#include "store/base/clock.h"
#include "store/base/file_system.h"
#include "store/base/file_system_kind.h"
#include "store/state/types.h"

namespace evalcar::watch {

/// How an output directory is watched, for people.
struct WatchMode {
  std::string file_system;  ///< "ext4", "NFS", …; "" while that is not known
  bool notices = false;     ///< the kernel tells of every change; else polling alone is relied on
  std::string reason;       ///< why it does not, or why the directory cannot be read; else ""
};

/// By step.
using UnfinishedFolders = std::map<std::int64_t, state::UnfinishedFolder>;

/// Not thread-safe.
class Watcher {
 public:
  using Inspect = watch::Inspect;
  /// All references must outlive it. Without `inspect`: checkpoint::inspect_layout.
  Watcher(const FileSystem& files, const Clock& clock, Notifier& notifier, WatchOptions options,
          Inspect inspect = nullptr);

  /// Forgets everything but `known`, and looks at everything anew: other content than what is known
  /// of a step was rewritten, and is judged as such.
  /// `unfinished`: what an earlier process saw of folders that were not complete.
  void begin(KnownContents known, UnfinishedFolders unfinished = {});
  /// Looks where hints, time or a poll say to look. Cheap when nothing is due.
  std::vector<Sighting> step();
  /// How long until step() has something to do without a hint.
  std::chrono::milliseconds until_due() const;
  /// False: a hint would not be acted on now, since the last look was a moment ago. until_due()
  /// says when; nobody need be woken by one before.
  bool wants_hints() const;
  /// The next step() looks at everything.
  void rescan() { scan_all_ = true; }
  /// Nothing is being written, as far as one can tell: every folder has a verdict that only a
  /// change on disk can alter.
  bool settled() const;
  /// A poll, at that time or later, found that nothing in the folder of this step has changed for
  /// watch.settle_time.
  bool rests(std::int64_t step, MonotonicTime since) const;
  /// The next step() looks at the folder of this step, however long it is at rest.
  void look_again(std::int64_t step) {
    asked_for_.insert(step);
    list_again_ = true;
  }
  /// A look at the folder of this step that began after that time has told what it is, or that it
  /// is not there.
  bool looked_at(std::int64_t step, MonotonicTime after) const;
  /// A look at all folders is under way: not all that are there were told.
  bool looks() const { return scan_all_ || sweep_.has_value(); }
  /// The first look is over: trouble() is true of it.
  bool looked() const { return looked_; }
  /// Empty while the output directory is there; else why it cannot be read.
  const std::string& trouble() const { return trouble_; }
  WatchMode mode() const;
  /// Where checkpoints, or the model alone, were found while the output directory held none, and
  /// what to do; else "".
  const std::string& elsewhere() const { return elsewhere_; }
  /// What is to be known of folders that are not complete after a restart, of the newest of them.
  /// Absent: not looked since begin(), or the directory cannot be read.
  std::optional<UnfinishedFolders> unfinished() const;
  /// Another number after each change of that.
  std::uint64_t unfinished_changes() const { return unfinished_changes_; }

 private:
  /// A look at the folders, newest first; one at thousands of them goes on in the next step().
  struct Sweep {
    bool poll = false;
    MonotonicTime previous_look{};
    std::set<std::string> hinted;
    std::set<std::int64_t> asked_for;
    std::int64_t below =
        std::numeric_limits<std::int64_t>::max();  ///< this step and those under it
    std::size_t rank = 0;
    std::size_t at_rest = 0;
    bool newer_became_complete = false;
    bool ended = false;
  };

  void take_hints();
  bool look_due() const;
  void begin_sweep(MonotonicTime now, std::vector<Sighting>& out);
  void look_at_folders(Sweep& sweep, MonotonicTime until, std::vector<Sighting>& out);
  enum class Wanted { kNothing, kGlance, kLook };
  Wanted wants(Sweep& sweep, std::int64_t step, const CheckpointFolder& folder);
  void look(std::int64_t step, CheckpointFolder& folder, std::vector<Sighting>& out);
  void list_folders(std::vector<Sighting>& out);
  void wait_for_root(const Error& why);
  void take_listed(const std::vector<ListedFolder>& listed, std::vector<Sighting>& out);
  void forget_gone(const std::set<std::int64_t>& present, std::vector<Sighting>& out);
  void forget(std::int64_t step, CheckpointFolder& folder);
  void look_at_file_system();
  void look_elsewhere();
  std::string path_of(const CheckpointFolder& folder) const {
    return join_path(options_.output_dir, folder.name());
  }
  bool newer_complete(std::int64_t step, std::int64_t written_after_ns) const;
  const WholeKind* newer(std::int64_t step, checkpoint::WeightsKind kind,
                         checkpoint::Layout layout) const;
  bool has_twin(std::int64_t step, checkpoint::WeightsKind kind, const WholeKind& whole) const;
  /// The first moment after that at which rest alone may change a verdict; absent: none is left.
  std::optional<MonotonicTime> rest_is_over(const CheckpointFolder& folder,
                                            MonotonicTime after) const;
  void note_rest();

  const FileSystem& files_;
  const Clock& clock_;
  Notifier& notifier_;
  WatchOptions options_;
  Inspect inspect_;
  Listing listing_;
  std::map<std::int64_t, CheckpointFolder> folders_;
  /// Of folders that were not seen yet, or that went: they may come back, rewritten.
  KnownContents remembered_;
  std::map<checkpoint::WeightsKind, CommonFiles> common_;
  UnfinishedFolders remembered_unfinished_;  ///< of folders that were not seen yet
  std::uint64_t unfinished_changes_ = 0;
  std::set<std::string> hinted_;
  std::set<std::int64_t> asked_for_;       ///< look_again()
  std::set<std::string> watched_parents_;  ///< only while the output directory is not there
  std::optional<Sweep> sweep_;             ///< is not at its end
  bool scan_all_ = true;
  bool list_again_ = true;
  MonotonicTime last_look_{};
  MonotonicTime last_poll_{};
  std::optional<MonotonicTime> rest_over_at_;  ///< of all folders, as of the last look
  LookPace pace_;                              ///< of looks that hints ask for
  std::optional<FileSystemKind> file_system_;
  /// Folders at rest are polled a few at a time, from the newest down.
  std::int64_t round_robin_ = std::numeric_limits<std::int64_t>::max();
  std::string trouble_ = "not looked yet";
  std::string elsewhere_;
  MonotonicTime elsewhere_due_{};
  bool looked_ = false;
  MonotonicTime listed_at_{};  ///< the last time that it could be
  bool listed_ = false;        ///< since begin(), and the directory was there ever since
};

}  // namespace evalcar::watch
