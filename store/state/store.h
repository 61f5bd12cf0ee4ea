// The memory of the sidecar: one SQLite file. Every step of an evaluation is one transaction, so
// that a kill or a power cut at any moment leaves a state from which `run` goes on. The contract of
// the file is FORMAT.md.
//
// The way of one evaluation through this class:
//   ensure_run → observe_checkpoint (at every scan) → plan_evaluation → transition(complete)
//   → mark_leased → begin_attempt → record_loaded → record_prepared → record_answers…
//   record_samples… → record_result → (agent/publish) begin_publication, finish_publication
// and where it goes wrong: fail_attempt, put_back, or transition(skipped | superseded | lost |
// quarantined). One that was published without some of its tasks goes the way once more from
// begin_completion on; wherever it ends then, it is published again, with what it has.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/clock.h"
#include "store/base/file_system.h"
#include "store/state/reader.h"
#include "store/state/types.h"

namespace evalcar::state {

struct StoreOptions {
  bool allow_network_file_system = false;  ///< SQLite's locks and WAL are not safe on NFS and such
  int open_timeout_ms = 15'000;            ///< how long opening waits for somebody else's lock
  /// How long a write does, before it is an error of the moment: whoever writes has other things to
  /// do, and signals to answer.
  int busy_timeout_ms = 1'000;
  /// quick_check is given up after so long: a start must not wait for a large file.
  std::chrono::milliseconds check_limit{10'000};
  /// A damaged file is moved to `<path>.damaged-<time>` and an empty one takes its place; the last
  /// three are kept. Else it is refused.
  bool set_damaged_aside = false;
};

/// Damaged databases of this path that lie aside, oldest first.
Result<std::vector<std::string>> damaged_files(const FileSystem& files, const std::string& path);

/// The only writer. Not thread-safe: one thread, the one that opened it. A lock on `<path>.lock`
/// keeps a second writer out. After an error of any method nothing of that call is in the file.
/// Errors: kNotFound (no such row), kInternal (an illegal transition: names both states), kIo (disk
/// full, …: retryable), kUnavailable (locked by somebody: retryable), kCorruption (the file is
/// damaged).
class Store {
 public:
  /// Creates or opens the file (and its folder), migrates an older schema, checks it with
  /// quick_check. A new file appears whole or not at all, so that an empty one is damaged.
  /// kUnsupported: a newer schema (the file stays as it is), or a network file system.
  /// kUnavailable: another process has the lock. kCorruption: not a database or damaged, unless
  /// `set_damaged_aside`; nothing is changed, the message says how to set it aside. `files` and
  /// `clock` must outlive the store.
  static Result<std::unique_ptr<Store>> open(FileSystem& files, const Clock& clock,
                                             const std::string& path, StoreOptions options = {});
  /// The process that has this database open for writing now, if there is one: asked without
  /// disturbing it.
  static std::optional<std::int64_t> writer_pid(const std::string& path);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// Questions, on this connection: they see what was just written.
  const Reader& read() const { return reader_; }
  const std::string& path() const { return path_; }
  /// What was found damaged at opening, and where it lies now; "" if nothing was.
  const std::string& set_aside() const { return set_aside_; }
  /// Why nothing more can be done with this file before it was opened anew, by another process:
  /// it turned out to be damaged (the next start sets it aside), or a sync of it failed. Else "".
  std::string must_end() const;
  /// Its file was removed, or another one has its name: what is written here is found by nobody.
  bool has_lost_file() const;

  /// The run of an output directory, of all generations: the one with this mark (that of its
  /// `_evalcar/run_id`; "" if there is none), else the newest that never had a mark and whose
  /// directory had this inode, which gets the mark; else a new generation. The device number only
  /// tells about mounts. `base_name` is database_stem(); `output_dir` its real path.
  /// `generation_hint`: at least this generation, if it is a new run: what its published lines say
  /// (the database was lost since).
  Result<Run> ensure_run(const std::string& base_name, const std::string& output_dir,
                         std::uint64_t device, std::uint64_t inode, const std::string& mark = "",
                         std::int64_t generation_hint = 1);
  Status set_mark(std::int64_t run_id, const std::string& mark);
  /// What the configuration of a run is now. Where it was another one, the current number of each
  /// step is found anew: the latest of these settings, else the latest of any.
  Status set_configured(std::int64_t run_id, const ConfiguredSettings& now);

  /// Records what a scan saw, and says which generation it is. A new generation starts when the
  /// folder has another inode, or a kind that was complete is complete again with another
  /// fingerprint (unless its files are some of those known). A complete kind that now looks
  /// incomplete (a delete in progress) changes nothing, nor does an observation without an inode
  /// (0: the folder went before it could be asked). Weights that lie elsewhere (lies_elsewhere) are
  /// a generation that leaves the folder of that name what it was: seen again as it is, it is still
  /// the generation before them; and so is one that is seen for the first time if all of it was
  /// written before them. Kinds of the observation become rows; their reasons are kept.
  /// `at_least`: what a new generation is, if that is more than the next one (leases tell of some
  /// that this database does not know).
  Result<Observed> observe_checkpoint(std::int64_t run_id, const CheckpointObservation& seen,
                                      std::int64_t at_least = 1);
  /// The generation that observe_checkpoint() would record it as. Writes nothing.
  Result<std::int64_t> generation_of(std::int64_t run_id, const CheckpointObservation& seen);
  /// The folder is not there any more. Its evaluations stay as they are.
  Status mark_checkpoint_gone(std::int64_t checkpoint_id);
  /// What is known of folders that are not complete yet, for a watcher after a restart; and which
  /// steps have none any more.
  Status set_unfinished(std::int64_t run_id, std::span<const UnfinishedFolder> seen,
                        std::span<const std::int64_t> ended);
  /// Where the kept weights of the best checkpoint are; "" when no longer kept.
  Status set_kept_path(std::int64_t checkpoint_id, const std::string& kind,
                       const std::string& path);

  /// The evaluation with this identity; made in state `found` if there is none yet.
  Result<Evaluation> plan_evaluation(const NewEvaluation& wanted);

  /// One legal step, with its reason in words ("" where none is needed). Use the methods below
  /// where a step carries data. Leaving loading or evaluating ends the running attempt as
  /// `interrupted`. → complete from an end state clears next_try_at and failures; from published it
  /// is legal only where a task failed (the row's reason says which), and keeps the lease. An end
  /// of a row that has numbers is `published`: with those, and the reason.
  Status transition(std::int64_t evaluation_id, EvaluationState to, const std::string& reason = "");
  /// The same → complete, because a person asks for it: it stays wanted whatever a cadence says.
  Status ask_again(std::int64_t evaluation_id, const std::string& reason);
  /// In any state: somebody asked for it, as by ask_again().
  Status set_asked(std::int64_t evaluation_id);
  /// Another reason in the same state ("waiting: … is short").
  Status set_reason(std::int64_t evaluation_id, const std::string& reason);
  /// published → complete, to measure the tasks that have no number. `circumstances`: under which
  /// each of them is tried now; they stay until an attempt tells others.
  Status begin_completion(std::int64_t evaluation_id,
                          const std::map<std::string, std::string>& circumstances);
  /// complete | failed → leased.
  Status mark_leased(std::int64_t evaluation_id, const std::string& lease_path);
  /// In state leased or failed: its files are held there from now on.
  Status move_lease(std::int64_t evaluation_id, const std::string& lease_path);
  /// In any state: the row has no lease any more. Before its folder is removed, so that no row
  /// remembers one that is not there.
  Status forget_lease(std::int64_t evaluation_id);
  /// leased | failed → loading; opens an attempt and returns its id.
  Result<std::int64_t> begin_attempt(std::int64_t evaluation_id, const std::string& device);

  struct LoadedOutcome {
    /// Not empty: some tasks have numbers, and those are of other weights or of another dtype. The
    /// row stays as it was: numbers of both must never stand in one.
    std::string differs;
    std::int64_t answers_kept = 0;
    std::int64_t answers_discarded = 0;  ///< they were made by other weights
  };
  /// loading → evaluating: the hash of the resident weights is known. Answers of other weights are
  /// deleted; read().answers() are the ones to send along. `compute_dtype`: what the device holds
  /// ("bfloat16"), part of a number's identity.
  Result<LoadedOutcome> record_loaded(std::int64_t evaluation_id, const std::string& weights_sha256,
                                      const std::string& compute_dtype);

  struct PreparedOutcome {
    /// Another evaluation of the same run, step, kind and settings already measured these very
    /// weights, all these tasks (and maybe others) with these very fingerprints: this one is now
    /// `superseded` and needs no evaluation.
    std::optional<std::int64_t> duplicate_of;
    /// It did so too, but the step shows other numbers since: the weights were others meanwhile,
    /// and are these again. Nothing needs to be measured: its read().result() is this one's, for
    /// record_result().
    std::optional<std::int64_t> measured_by;
    std::int64_t answers_usable = 0;  ///< of those that are known: of these fingerprints
  };
  /// In state evaluating: what the tasks are of now (protocol::Prepared).
  Result<PreparedOutcome> record_prepared(std::int64_t evaluation_id,
                                          std::span<const protocol::TaskFingerprint> tasks);
  /// In state loading or evaluating. At most once a second: each call is a synced write.
  Status record_progress(std::int64_t evaluation_id, const std::string& stage, std::int64_t done,
                         std::int64_t total);
  /// In state evaluating: answers as they come, a batch at a time (one transaction). An answer that
  /// is already there with the same fingerprint is replaced.
  Status record_answers(std::int64_t evaluation_id, std::span<const protocol::Sample> answers);
  /// In state evaluating: scored lines, some hundred at a time, and which pictures are theirs.
  Status record_samples(std::int64_t evaluation_id, std::span<const protocol::Scored> samples);
  /// In state evaluating: the score of a part, as a line of metrics.jsonl that says so. The seq of
  /// the line rises as those of results do; `make_line`, `after_seq` and `written_seq` are as in
  /// begin_publication(). `key` names it: asking again gives the same line. kCorruption if it is of
  /// other weights than those that were loaded. Never a number of the views `metrics` or `samples`.
  Result<InterimLine> record_interim(
      std::int64_t evaluation_id, const protocol::Interim& interim, const std::string& key,
      std::int64_t after_seq,
      const std::function<Result<std::string>(std::int64_t seq,
                                              std::optional<std::int64_t> supersedes)>& make_line,
      std::optional<std::int64_t> written_seq = std::nullopt);
  /// evaluating → scored, the attempt ends as `scored`, its answers are dropped. kCorruption if the
  /// result's weights_sha256 is not the one of record_loaded; kInvalidArgument if no task has a
  /// result (use fail_attempt), or one comes without a fingerprint: nothing is stored. A task whose
  /// number is already known for (weights, kind, task version, settings, fingerprint) keeps that
  /// number. Where every task has one now, the row forgets its lease; else the lease stays, for the
  /// rest.
  Status record_result(std::int64_t evaluation_id, const protocol::EvaluationResult& result);

  /// loading | evaluating | leased | complete | found → failed (tried again not before
  /// `next_try_at`, a format_utc text; "" = at once), or → quarantined if `quarantine`. Ends the
  /// running attempt as `failed`. After a fault of the device (protocol::is_device_fault) its
  /// answers are dropped, here and in put_back().
  Status fail_attempt(std::int64_t evaluation_id, const AttemptFailure& failure,
                      const std::string& next_try_at, bool quarantine);
  /// loading | evaluating → leased: the running attempt ends as `failed` for a reason that is not
  /// the checkpoint's. It does not count as a failure, and the reason stays on the row. A row that
  /// has numbers, and the rest of whose data is missing (protocol::kData), is published again.
  Status put_back(std::int64_t evaluation_id, const AttemptFailure& failure);
  /// At start: attempts that a kill interrupted end as `interrupted`, their evaluations go back to
  /// `leased`. Returns how many.
  Result<std::int64_t> recover();

  /// What a result's line takes the place of: each time the newest line of the same run, step and
  /// kind that shares a task with it.
  struct Superseded {
    std::optional<std::int64_t> line;     ///< a result's; where there is none, as `interim`
    std::optional<std::int64_t> interim;  ///< of the score of a part
  };
  /// Decides the line of a scored evaluation: seq is one above the largest known and above
  /// `after_seq` (the largest in the file); `make_line` gets it and what it supersedes. Asking
  /// again gives the same line, until the evaluation was tried again after it: then a new one takes
  /// its place here. `written_seq`: of the line that the file has already (the database was lost
  /// since); it is kept, unless the database gave it to another line.
  Result<Publication> begin_publication(
      std::int64_t evaluation_id, std::int64_t after_seq,
      const std::function<Result<std::string>(std::int64_t seq, const Superseded& superseded)>&
          make_line,
      std::optional<std::int64_t> written_seq = std::nullopt);
  /// scored → published: line and files are on disk. `files` are recorded.
  Status finish_publication(std::int64_t evaluation_id, const std::vector<std::string>& files);
  /// scored → published without a line: of what was asked for besides the configured series
  /// (settings.requested).
  Status finish_unlisted(std::int64_t evaluation_id);
  /// In state published: its scored samples go, except those that numbers of evaluations other than
  /// `with` show too, and its files are not to be written again. Numbers, answers' counts and the
  /// line stay. `with`: what is pruned together, this one included. Returns how many samples went.
  Result<std::int64_t> prune(std::int64_t evaluation_id, std::span<const std::int64_t> with);

  /// What published files say of an evaluation that this database does not know, or knows less of:
  /// it was lost, or its newest part was. The rows become what they were, in state published; the
  /// checkpoint counts as gone until it is observed. False: an evaluation of this identity has
  /// numbers here, its checkpoint's generation is of other files, or its seq is another's; nothing
  /// is changed then.
  Result<bool> take_published(std::int64_t run_id, const PublishedEvaluation& published);

 private:
  struct Lock;
  struct OpenPath;
  Store(std::shared_ptr<Connection> connection, std::unique_ptr<Lock> lock, const Clock& clock,
        std::string path);
  std::string now() const;

  // These run inside the caller's transaction.
  Result<EvaluationState> state_of(std::int64_t evaluation_id);
  /// Checks and writes a transition. Ends a running attempt as `outcome`.
  Status move(std::int64_t evaluation_id, EvaluationState to, const std::string& why,
              const std::string& outcome = "interrupted", const AttemptFailure& failure = {});
  Status drop_doubtful_answers(std::int64_t evaluation_id, const AttemptFailure& failure);
  Status require_state(std::int64_t evaluation_id, std::span<const EvaluationState> allowed,
                       std::string_view what);
  /// The id of the evaluation with this identity, made in state `found` if need be.
  Result<std::int64_t> plan_row(const NewEvaluation& wanted);
  /// Its row; `of_folder`: that of the folder itself, not of weights that lay elsewhere. Absent:
  /// there is none.
  Result<std::optional<std::int64_t>> newest_generation(std::int64_t run_id,
                                                        const std::string& name,
                                                        bool of_folder = false);
  struct KnownAs {
    std::optional<Checkpoint> newest;  ///< of that name
    std::optional<Checkpoint> same;    ///< the generation that is seen
    /// Not known, but older than all that is: the generation that it is to be.
    std::optional<std::int64_t> below = {};
  };
  Result<KnownAs> known_as(std::int64_t run_id, const CheckpointObservation& seen);
  Status find_beside_weights(std::int64_t run_id, const CheckpointObservation& seen,
                             KnownAs& known);
  Result<bool> is_older(const CheckpointObservation& seen, std::int64_t than_checkpoint);
  Result<std::int64_t> insert_checkpoint(std::int64_t run_id, const CheckpointObservation& seen,
                                         std::int64_t generation);
  Status record_kinds(std::int64_t checkpoint_id, const CheckpointObservation& seen);
  /// Evaluations that may make this one needless, oldest first.
  Result<std::vector<std::int64_t>> measured_twins(std::int64_t evaluation_id);
  /// The number of this evaluation's task is the one that its step shows.
  Result<bool> is_shown(std::int64_t evaluation_id, const std::string& task) const;
  Result<bool> has_result(std::int64_t evaluation_id, const protocol::TaskFingerprint& of) const;
  /// The result's row for this task: the known one of the same key, or a new one.
  Result<std::int64_t> insert_result(const Evaluation& evaluation, const std::string& result_key,
                                     const protocol::TaskResult& task);
  Status insert_metrics(std::int64_t result_id, const protocol::TaskResult& task);
  /// For a line that is decided now: `written`, if no other line has it, else one above all.
  Result<std::int64_t> next_seq(std::int64_t after_seq, std::optional<std::int64_t> written);
  /// Absent: the generation is there, and of other files.
  Result<std::optional<std::int64_t>> checkpoint_of_published(std::int64_t run_id,
                                                              const PublishedEvaluation& published);
  Status record_pictures(const protocol::Scored& sample);
  Status insert_published_numbers(std::int64_t evaluation_id, const PublishedEvaluation& published);
  /// "not measured: textvqa_val: …", of the tasks of a scored evaluation that failed; "" if none.
  Result<std::string> failed_tasks(std::int64_t evaluation_id);
  /// Tasks of it were scored, in this time or an earlier one.
  Result<bool> has_numbers(std::int64_t evaluation_id);
  /// Why numbers that it has do not go with these weights; "" if they do, or there are none.
  Result<std::string> differs_from_numbers(const Evaluation& evaluation,
                                           const std::string& weights_sha256,
                                           const std::string& compute_dtype);
  /// The step has a number as configured now, and this evaluation's is of other settings.
  Result<bool> yields(const Evaluation& evaluation, const std::string& task);
  Status link_task(const Evaluation& evaluation, const protocol::TaskResult& task,
                   std::int64_t position, std::optional<std::int64_t> result_id);

  std::unique_ptr<Lock> lock_;
  std::unique_ptr<OpenPath> file_;
  std::shared_ptr<Connection> connection_;
  Reader reader_;
  const Clock& clock_;
  std::string path_;
  std::string set_aside_;
};

}  // namespace evalcar::state
