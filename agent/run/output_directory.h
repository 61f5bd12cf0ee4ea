// One watched output directory: what the watcher sees becomes rows of the store and leases on disk.
//
// Everything that matters is in the store; the members here can be lost at any time and are found
// again by a look at the disk and at the rows. Nothing is created in the output directory before
// its first checkpoint folder exists.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/config/settings.h"
#include "agent/publish/publisher.h"
#include "agent/run/output_lock.h"
#include "agent/schedule/schedule.h"
#include "agent/stage/stage.h"
#include "agent/watch/watcher.h"
#include "store/state/store.h"

namespace evalcar::run {

/// What every part of the agent is given; all of it outlives them.
struct Surroundings {
  FileSystem& files;
  const Clock& clock;
  std::function<bool()> stopping;         ///< true ends long work; may be null
  std::string version;                    ///< of the program
  std::vector<std::string> self_command;  ///< how to run `evalcar` itself
  std::function<std::unique_ptr<watch::Notifier>()> make_notifier;
  /// Other names of a task's metrics; may be null.
  std::function<std::vector<std::string>(const std::string& task, const std::string& metric)>
      aliases;
};

/// How the evaluations of a directory ended, for the exit code.
struct Tally {
  std::int64_t published = 0;
  std::int64_t failed = 0;       ///< quarantined or lost
  std::int64_t unpublished = 0;  ///< scored, but the files could not be written
  std::int64_t open = 0;
  std::int64_t total = 0;
};

/// Not thread-safe.
class OutputDirectory {
 public:
  /// Opens the database and recovers what a kill interrupted. kUnavailable: another agent has it.
  static Result<std::unique_ptr<OutputDirectory>> open(const Surroundings& around,
                                                       const config::Settings& settings,
                                                       const std::string& path);

  /// One turn: look, record, lease, publish what is left over, guard the disk. An error is of the
  /// moment (a full disk, a locked file): the next turn tries again. kUnavailable with
  /// `fatal()`: another agent owns the directory.
  Status step();
  std::chrono::milliseconds until_due() const;
  int notifier_descriptor() const { return notifier_->descriptor(); }
  bool fatal() const { return fatal_; }

  /// Evaluations that wait for their turn. Those given up by the policy are marked here.
  Result<std::vector<schedule::Candidate>> waiting();
  Status supersede(const std::vector<std::int64_t>& evaluations);
  /// How many waited at the last look.
  std::size_t waiting_count() const { return waiting_count_; }
  /// An evaluation's lease, taken now if need be. Absent: it cannot run now, or never; the row says
  /// why.
  Result<std::optional<stage::Lease>> lease_of(const state::Evaluation& row);
  /// Gives the lease back.
  void release(const state::Evaluation& row);
  /// Failed: again after a growing pause, or quarantined; or lost, if its files are gone.
  Status fail(const state::Evaluation& row, const state::AttemptFailure& failure, bool retryable);
  /// After record_result. An error leaves it scored; a later turn publishes it.
  Status publish(const state::Evaluation& row);
  /// Whose files were replaced since the last call: running jobs on them must end.
  std::set<std::int64_t> take_superseded() { return std::exchange(superseded_, {}); }

  /// Nothing is being written, nothing waits.
  Result<bool> quiet();
  /// At the end of --once: what is torn ends as quarantined, with its reason.
  Status close_torn();
  Result<Tally> tally() const;
  /// Writes status.json, at most every few seconds unless `now`.
  void write_status(const publish::AgentFacts& facts, bool now);

  state::Store& store() { return *store_; }
  stage::Stage& stage() { return *stage_; }
  const std::string& path() const { return path_; }
  std::optional<std::int64_t> newest_step() const;
  /// The evaluation that runs now: its lease is not given up for disk space.
  void set_active(std::optional<std::int64_t> evaluation) { active_ = evaluation; }
  /// Monotonic time of the last change that was seen.
  MonotonicTime last_news() const { return last_news_; }

 private:
  OutputDirectory(const Surroundings& around, const config::Settings& settings, std::string path);

  using Key = std::pair<std::int64_t, checkpoint::WeightsKind>;

  Status ensure_run();
  /// Whether the mark in our folder has been missing too short a time to conclude anything.
  bool wait_for_mark(const std::string& mark);
  Result<std::optional<state::Run>> run_with_this_content(const std::string& stem);
  void leave_run();
  Status begin_watching(std::int64_t run_id);
  Status mark_home();
  Status ensure_home();
  Status publish_left_over();
  Result<std::vector<state::Evaluation>> scored_rows() const;
  Status not_published(const Error& error);
  bool publishing_fails() const;
  /// A place that cannot be written is told of when that changes, not at every turn.
  static void warn_once(std::string& known, const std::string& text);
  Status handle(const watch::Sighting& seen);
  Status handle_waiting(const watch::Sighting& seen);
  Status handle_complete(const watch::Sighting& seen);
  Status handle_not_started(const watch::Sighting& seen);
  Status handle_unreadable(const watch::Sighting& seen);
  Status handle_gone(const watch::Sighting& seen);
  Result<state::Evaluation> record(const watch::Sighting& seen);
  Status supersede_generation(std::int64_t checkpoint_id, const std::string& reason);
  void note_presence(const watch::Sighting& seen);
  Status end_vanished();
  Result<std::string> why_not_wanted(std::int64_t step, const std::string& kind) const;
  Result<bool> end_if_unwanted(const state::Evaluation& row);
  Result<bool> hand_over_lease(const state::Evaluation& row);
  Status take_lease(const state::Evaluation& row, const watch::Sighting& seen);
  void link_in_checkpoint(const watch::Sighting& seen);
  Status guard_disk();
  Status end(std::int64_t evaluation, state::EvaluationState to, const std::string& reason);
  std::uint64_t copy_budget() const;
  std::uint64_t folder_bytes(const std::string& path, int depth) const;
  std::uint64_t min_free() const;
  std::string publish_dir() const;
  std::string home() const { return join_path(path_, "_evalcar"); }

  const Surroundings& around_;
  const config::Settings& settings_;
  protocol::EvaluationSettings wanted_;
  std::string path_;
  std::string database_;
  std::unique_ptr<watch::Notifier> notifier_;
  std::unique_ptr<watch::Watcher> watcher_;
  std::unique_ptr<stage::Stage> stage_;
  std::unique_ptr<state::Store> store_;
  std::unique_ptr<publish::Publisher> publisher_;
  std::optional<state::Run> run_;
  std::uint64_t root_inode_ = 0;
  /// Since when the mark is missing; nothing is done in the directory until that is decided.
  std::optional<MonotonicTime> unmarked_since_;
  std::optional<OutputLock> lock_;
  bool home_ready_ = false;
  bool fatal_ = false;

  std::map<Key, watch::Sighting> untold_;                    ///< seen, not yet recorded
  std::map<Key, watch::Sighting> complete_;                  ///< the newest content of each kind
  std::map<Key, watch::Sighting> torn_;                      ///< of those, what is not whole
  std::map<std::int64_t, std::int64_t> checkpoint_of_step_;  ///< its row
  std::map<std::int64_t, std::string> present_;              ///< folders that are there, by step
  std::map<std::int64_t, stage::Lease> leases_;              ///< by evaluation
  bool vanished_ended_ = false;                              ///< end_vanished() was done
  std::set<std::int64_t> superseded_;
  std::optional<std::int64_t> active_;
  std::size_t waiting_count_ = 0;
  bool begun_ = false;  ///< the first checkpoint is there
  bool publish_again_ = true;
  std::int64_t publish_failures_ = 0;  ///< tries in a row
  std::string home_trouble_;
  std::string status_trouble_;
  MonotonicTime publish_at_{};
  MonotonicTime home_retry_at_{};
  MonotonicTime retry_at_{};
  MonotonicTime guarded_at_{};
  MonotonicTime status_at_{};
  MonotonicTime last_news_{};
};

}  // namespace evalcar::run
