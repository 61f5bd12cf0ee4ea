// Which run an output directory holds now, and our folder `_evalcar` in it or beside it: made once
// there is a checkpoint folder, locked against a second agent, and marked, so that the run is known
// again.
//
// A directory can be removed and made anew (another run), moved away and back (the same run), be a
// mount point that is not mounted (no run), and lose our folder alone (the same run).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "agent/publish/recall.h"
#include "agent/run/averages.h"
#include "agent/run/best_kept.h"
#include "agent/run/folder_lock.h"
#include "agent/run/home_move.h"
#include "agent/run/slice.h"
#include "agent/run/surroundings.h"
#include "agent/stage/stage.h"
#include "agent/watch/watcher.h"
#include "store/state/store.h"

namespace evalcar::run {

/// Not thread-safe. All references must outlive it.
class CurrentRun {
 public:
  enum class Change {
    kSame,     ///< as at the last look
    kUnsure,   ///< the mark is missing: too short a time to conclude anything, look again soon
    kRecalls,  ///< another run is entered: what was published of it is being read, go on at once
    kLeft,     ///< there is no run: whatever is remembered of one is void
    kEntered,  ///< another run than at the last look; known_contents() is what is known of it
    kBack,     ///< the same run; what lies in our folder may be gone, and the folder with it
  };

  CurrentRun(const Surroundings& around, state::Store& store, stage::Stage& stage,
             const Averages& averages, const BestKept& best, std::string path, HomePlace home,
             std::string pattern, std::string publish_dir);
  ~CurrentRun() = default;
  CurrentRun(const CurrentRun&) = delete;
  CurrentRun& operator=(const CurrentRun&) = delete;

  /// Looks at the directory. An error changes nothing.
  Result<Change> look(Slice& slice);
  /// What earlier processes saw in the run that was entered, for watch::Watcher::begin.
  watch::KnownContents known_contents() { return std::exchange(known_contents_, {}); }
  /// Makes our folder, takes the lock in it and in publish.dir, and drops leases that no row knows.
  /// Where it cannot be made everything goes on, with checkpoints read in place and without a lock.
  /// kUnavailable with `fatal()`: another agent owns the directory, or publishes there.
  Status ensure_home();

  bool known() const { return run_.has_value(); }
  /// How many evaluations came into the database from what was published, since it did not know
  /// them.
  std::int64_t recalled() const { return recalled_; }
  /// Only while known().
  const state::Run& run() const { return *run_; }
  std::int64_t id() const { return run_->id; }
  /// It may be another run than that.
  bool unsure() const { return unmarked_since_.has_value() || entering_.has_value(); }
  /// The last look() said kRecalls.
  bool recalls() const { return entering_.has_value(); }
  /// Whether the directory is there, and at this moment the run that it was at the last look.
  bool still_there() const;
  bool home_ready() const { return home_ready_; }
  /// The first checkpoint is there: our folder may be made.
  bool begun() const { return begun_; }
  /// The directory, or publish.dir, is another agent's; nothing more is written into either.
  bool fatal() const { return !fatal_reason_.empty(); }
  const std::string& fatal_reason() const { return fatal_reason_; }
  /// Asked right before something is published: whether the directory is still ours. kUnavailable
  /// with `fatal()`: another agent took it over while this one slept.
  Status check_owner();
  /// Until settle_takeover(): the directory was taken over from an owner that may wake up.
  bool took_over() const { return took_over_; }
  void settle_takeover() { took_over_ = false; }
  /// When the ownership has to be renewed; absent: never.
  std::optional<MonotonicTime> renewal_due() const;
  /// Our folder: `<output_dir>/_evalcar`, or beside it (store/checkpoint/home_place.h).
  const std::string& home() const { return home_.path; }
  const std::string& output_dir() const { return path_; }
  /// Why our folder, or the lock in it, could not be made at the last try; "" where it was.
  const std::string& home_trouble() const { return home_trouble_; }

 private:
  bool silent() const;
  bool wait_for_mark(const std::string& mark);
  Result<std::optional<state::Run>> run_with_this_content(const std::string& stem);
  Result<watch::KnownContents> read_known_contents(std::int64_t run_id) const;
  /// A run whose published files are being read, before anything of it is planned.
  struct Entering {
    state::Run run;
    std::uint64_t inode = 0;
    std::string mark;  ///< as it was found
    bool home_deleted = false;
    publish::Recall recall;
  };
  Result<Change> go_on_entering(Slice& slice);
  void tell_recalled(const publish::Recalled& found);
  void take(state::Run run, std::uint64_t inode, bool home_deleted);
  void forget_home();
  void leave();
  Status make_home();
  Status take_publish_lock(std::string& trouble);
  Status take_lock(FolderLock& lock, const std::string& folder, std::string& trouble);
  Status keep_locks();
  Status check_lock(FolderLock& lock, const std::string& folder);
  void drop_locks();
  bool publishes_elsewhere() const;
  Status remove_unknown_leases();
  Status mark_home();

  const Surroundings& around_;
  state::Store& store_;
  stage::Stage& stage_;
  const Averages& averages_;
  const BestKept& best_;
  std::string path_;
  HomePlace home_;
  std::string pattern_;
  std::string publish_dir_;  ///< "": our folder
  std::optional<state::Run> run_;
  std::optional<Entering> entering_;
  watch::KnownContents known_contents_;
  std::uint64_t root_inode_ = 0;
  std::int64_t recalled_ = 0;
  /// Since when the mark is missing; nothing is done in the directory until that is decided.
  std::optional<MonotonicTime> unmarked_since_;
  FolderLock home_lock_;
  FolderLock publish_lock_;  ///< where publish.dir is not our folder
  bool took_over_ = false;
  std::string removed_lock_;  ///< by somebody; it is taken again a little later
  bool home_ready_ = false;
  bool begun_ = false;
  std::string fatal_reason_;
  std::string home_trouble_;
  MonotonicTime home_retry_at_{};
};

}  // namespace evalcar::run
