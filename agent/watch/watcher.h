// Looks at one output directory and tells what changed: which checkpoints there are, and for each
// kind of weights whether it may be evaluated.
//
// Hints (inotify) only say where to look first; every poll looks everywhere, the disk is the truth,
// and what is remembered of earlier looks only makes it wait. Folders count if their
// name is the pattern with a canonical whole number; a link counts if it leads to a folder in the
// output directory that does not count by itself, and is refused where it leads out. Nothing is
// written, and nothing is held open. Where the output directory cannot be read, or its file system
// does not answer, nothing is concluded.
#pragma once

#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/watch/completeness.h"
#include "agent/watch/content.h"
#include "agent/watch/notifier.h"
#include "agent/watch/one_save.h"
#include "store/base/clock.h"
#include "store/base/file_system.h"
#include "store/base/file_system_kind.h"
#include "store/checkpoint/layout.h"
#include "store/state/types.h"

namespace evalcar::watch {

/// What is known of one kind of weights of one checkpoint; told again only when it changes.
struct Sighting {
  std::int64_t step = 0;
  std::string folder;  ///< name: "checkpoint-500"
  std::string path;
  checkpoint::Layout layout = checkpoint::Layout::kHuggingFace;
  checkpoint::WeightsKind kind = checkpoint::WeightsKind::kRegular;
  Verdict verdict = Verdict::kWaiting;
  std::string reason;
  /// kComplete: state::content_fingerprint() of `files`; another one is another generation.
  std::string fingerprint;
  std::vector<WatchedFile> files;
  bool rewritten = false;          ///< kComplete: other content of this kind was complete before
  std::uint64_t folder_bytes = 0;  ///< kComplete: of everything in the folder
};

struct WatchOptions {
  std::string output_dir;
  std::string pattern = "checkpoint-{step}";
  std::string end_marker;
  /// evaluate.base_model: what a checkpoint without a configuration is evaluated with.
  std::string base_model;
  std::chrono::milliseconds poll_interval{10'000};
  std::chrono::milliseconds settle_time{30'000};
  /// At most one look in this time, however many hints come; longer where a look takes long.
  std::chrono::milliseconds shortest_pause{50};
  /// A step takes little longer: what is not looked at then is in the next one.
  std::chrono::milliseconds longest_step{250};
};

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
  using Inspect =
      std::function<Result<checkpoint::LayoutReport>(const FileSystem&, const std::string& dir)>;
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
  /// The first look is over: trouble() is true of it.
  bool looked() const { return looked_; }
  /// Empty while the output directory is there; else why it cannot be read.
  const std::string& trouble() const { return trouble_; }
  WatchMode mode() const;
  /// What is to be known of folders that are not complete after a restart, of the newest of them.
  /// Absent: not looked since begin(), or the directory cannot be read.
  std::optional<UnfinishedFolders> unfinished() const;
  /// Another number after each change of that.
  std::uint64_t unfinished_changes() const { return unfinished_changes_; }

 private:
  struct KindMemory {
    Verdict verdict = Verdict::kGone;
    std::string reason;
    KnownContent content;            ///< the last complete one
    std::vector<WatchedFile> files;  ///< of it
  };
  struct Folder {
    std::string name;
    std::string tree_signature;  ///< of tree.h, two levels deep
    MonotonicTime changed_at{};  ///< when we last saw that differ
    std::uint64_t bytes = 0;
    bool unsettled = true;
    bool stood =
        false;  ///< what it was at rest with was seen for longer than attributes are cached
    std::string refused;  ///< why nothing in it is looked at; else ""
    RewriteWatch rewrite;
    std::map<checkpoint::WeightsKind, KindMemory> kinds;
    std::set<std::string> watched;
  };
  /// What an entry of the output directory whose name counts turned out to be.
  enum class Entry { kFolder, kUnclear, kNone };

  void take_hints();
  bool look_due() const;
  /// A look at the folders, newest first; one at thousands of them goes on in the next step().
  struct Sweep {
    bool poll = false;
    MonotonicTime previous_look{};
    std::set<std::string> hinted;
    std::int64_t below =
        std::numeric_limits<std::int64_t>::max();  ///< this step and those under it
    std::size_t rank = 0;
    std::size_t at_rest = 0;
    bool newer_became_complete = false;
    bool ended = false;
  };
  void begin_sweep(MonotonicTime now, std::vector<Sighting>& out);
  void look_at_folders(Sweep& sweep, MonotonicTime until, std::vector<Sighting>& out);
  bool wants_look(Sweep& sweep, std::int64_t step, const Folder& folder);
  void list_folders(std::vector<Sighting>& out);
  void look_at_file_system();
  void ignore(const std::string& name, const std::string& why);
  Entry judge_entry(const DirectoryEntry& entry, std::string& refused);
  void look(std::int64_t step, Folder& folder, std::vector<Sighting>& out);
  void see_rewrites(std::int64_t step, Folder& folder, const FilesSeen& all);
  std::optional<std::uint64_t> tail_of(const Folder& folder, const std::string& path,
                                       std::uint64_t size) const;
  RewriteWatch::TailOf tails_of(const Folder& folder) const {
    return [this, &folder](const std::string& path, std::uint64_t size) {
      return tail_of(folder, path, size);
    };
  }
  void judge(std::int64_t step, Folder& folder, const FilesSeen& all, std::vector<Sighting>& out);
  void judge_kind(std::int64_t step, Folder& folder, const FilesSeen& all,
                  const checkpoint::LayoutReport& report, const checkpoint::KindState& state,
                  std::vector<Sighting>& out);
  bool written_meanwhile(const Folder& folder, const FilesSeen& all,
                         const std::vector<WatchedFile>& files) const;
  void tell_of_same_generation(std::int64_t step, Folder& folder, checkpoint::Layout layout,
                               std::size_t from, std::vector<Sighting>& out);
  void judge_unreadable(std::int64_t step, Folder& folder, const Error& error,
                        std::vector<Sighting>& out);
  void tell(std::int64_t step, Folder& folder, checkpoint::Layout layout,
            checkpoint::WeightsKind kind, Decision decision, std::vector<Sighting>& out);
  void forget_gone(const std::set<std::int64_t>& present, std::vector<Sighting>& out);
  bool unchanged_since_complete(const Folder& folder) const;
  bool is_going(const Folder& folder) const;
  void watch_folder(Folder& folder, const std::string& path);
  void unwatch_all(Folder& folder);
  std::string path_of(const Folder& folder) const {
    return join_path(options_.output_dir, folder.name);
  }
  /// A checkpoint with a higher step is complete, and a file of it is not older than that.
  bool newer_complete(std::int64_t step, std::int64_t written_after_ns) const;

  const FileSystem& files_;
  const Clock& clock_;
  Notifier& notifier_;
  WatchOptions options_;
  Inspect inspect_;
  std::map<std::int64_t, Folder> folders_;
  /// Of folders that were not seen yet, or that went: they may come back, rewritten.
  KnownContents remembered_;
  UnfinishedFolders remembered_unfinished_;  ///< of folders that were not seen yet
  std::uint64_t unfinished_changes_ = 0;
  std::set<std::string> hinted_;
  std::set<std::string> watched_parents_;  ///< only while the output directory is not there
  std::optional<Sweep> sweep_;             ///< is not at its end
  bool scan_all_ = true;
  bool list_again_ = true;
  MonotonicTime last_look_{};
  MonotonicTime last_poll_{};
  std::chrono::milliseconds pause_;  ///< before the next look that a hint asks for
  std::optional<FileSystemKind> file_system_;
  std::set<std::string> ignored_;  ///< names that were told of, the first ones
  /// Folders at rest are polled a few at a time, from the newest down.
  std::int64_t round_robin_ = std::numeric_limits<std::int64_t>::max();
  std::string trouble_ = "not looked yet";
  bool looked_ = false;
};

}  // namespace evalcar::watch
