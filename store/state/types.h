// The rows of the store as values, and the states of an evaluation. Times are UTC texts of
// format_utc() ("2026-11-21T09:00:05.123456Z"), so that they sort as text and people can read them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/protocol/messages.h"

namespace evalcar::state {

/// found → complete → leased → loading → evaluating → scored → published, or one of the ends, each
/// with a reason in words. See transitions.cpp for the whole table.
enum class EvaluationState {
  kFound,        ///< its checkpoint (or this kind of it) is seen, not yet whole
  kComplete,     ///< whole on disk, waiting for its turn
  kLeased,       ///< hard-linked: retention cannot take it any more
  kLoading,      ///< an attempt runs: weights are being read
  kEvaluating,   ///< an attempt runs: the weights are resident and their hash is known
  kScored,       ///< results are in the database, files are not all written yet
  kPublished,    ///< end: everything is written
  kFailed,       ///< an attempt failed; tried again at next_try_at
  kQuarantined,  ///< end: failed too often, or can never succeed
  kSkipped,      ///< end: not wanted (policy, cancelled, nothing to evaluate)
  kSuperseded,   ///< end: a newer checkpoint, or the same weights, took its place
  kLost,         ///< end: the files went before they were measured
};
/// "found", "complete", …: as in the database, status.json and the views.
std::string_view state_name(EvaluationState state);
std::optional<EvaluationState> state_from_name(std::string_view name);
/// True for the states that no automatic step leaves: published, quarantined, skipped, superseded,
/// lost.
bool is_end_state(EvaluationState state);
/// Whether `from → to` is a legal transition. From an end state but `published`, only → complete:
/// a retry or backfill that a person asked for.
bool transition_allowed(EvaluationState from, EvaluationState to);

/// One life of an output directory.
struct Run {
  std::int64_t id = 0;
  std::string name;        ///< "<basename>-<8 hex>-<generation>": the `run` of every view and file
  std::string output_dir;  ///< its real path
  std::int64_t generation = 1;
  std::string created_at;
  std::string mark = {};  ///< also in the directory's `_evalcar/run_id`; "" where none was written
};

/// One file of a checkpoint, for content_fingerprint().
struct FileIdentity {
  std::string path;  ///< relative to the checkpoint
  std::uint64_t inode = 0;
  std::uint64_t size_bytes = 0;
  std::int64_t mtime_ns = 0;
  bool operator==(const FileIdentity&) const = default;
};
/// What the watcher sees of one kind of weights, now.
struct KindObservation {
  std::string kind;  ///< "regular" | "ema"
  bool complete = false;
  std::string reason;       ///< why not complete, in words
  std::string fingerprint;  ///< if complete: content_fingerprint() of its files
  std::uint64_t size_bytes = 0;
  /// The newest file's; of one that is not complete, of all that is in its folder. 0: not known.
  std::int64_t mtime_ns = 0;
  std::vector<FileIdentity> files = {};  ///< if complete: of what
};

/// A kind of weights that was complete in the newest generation of a checkpoint.
struct KnownKind {
  std::int64_t step = 0;
  std::string name;             ///< of the folder
  std::int64_t generation = 1;  ///< of the checkpoint that has it; a newer one may lack it still
  std::string kind;
  std::string fingerprint;
  std::vector<FileIdentity> files;  ///< empty for a row of a schema before version 2
};

/// What the watcher remembers of a checkpoint folder that is being written, so that it knows after
/// a restart which files a save wrote over.
struct UnfinishedFolder {
  std::int64_t step = 0;
  std::vector<FileIdentity> files;     ///< its weights, at the last look
  std::vector<FileIdentity> older;     ///< of them or before them: those of an earlier save
  std::optional<std::int64_t> end_ns;  ///< when a save had ended, as that look saw it
  /// By path: a hash of the last bytes of a file, as in `files`, and as in `older`.
  std::map<std::string, std::uint64_t> tails = {};
  std::map<std::string, std::uint64_t> older_tails = {};
  bool operator==(const UnfinishedFolder&) const = default;
};

/// What the watcher sees of one checkpoint folder, now. Absent kinds are left out.
struct CheckpointObservation {
  std::string name;  ///< "checkpoint-500"
  std::string path;  ///< the folder's own, not the lease's
  std::int64_t step = 0;
  std::string layout;  ///< checkpoint::layout_name(), "" while not recognised
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::vector<KindObservation> kinds;
};

/// One generation of a checkpoint folder: a folder that is rewritten or recreated is another row.
struct Checkpoint {
  std::int64_t id = 0;
  std::int64_t run_id = 0;
  std::string run;
  std::string name;
  std::string path;
  std::int64_t step = 0;
  std::int64_t generation = 1;
  std::string layout;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::string seen_at;
  std::string gone_at;  ///< "" while the folder is there
};

/// Whether what is at `path` are weights alone that lie elsewhere than in the folder `name`.
bool lies_elsewhere(std::string_view path, std::string_view name);

struct Observed {
  Checkpoint checkpoint;
  bool is_new = false;  ///< this call made the row
  /// The row that this new generation replaces (its open evaluations measure files that are no more
  /// in the folder).
  std::optional<std::int64_t> replaces;
  bool is_older = false;  ///< weights that lay elsewhere came after it
};

/// What is wanted. Identity: checkpoint generation, kind, the set of tasks, settings and dtype;
/// asking twice gives the same row.
struct NewEvaluation {
  std::int64_t checkpoint_id = 0;
  std::string kind;  ///< "regular" | "ema" | "average"
  std::string dtype = "auto";
  protocol::EvaluationSettings settings;  ///< with its tasks
};

/// Where an evaluation stands: what is asked of all that wait, or of a long history.
struct Standing {
  std::int64_t id = 0;
  std::int64_t step = 0;
  std::string kind;
  protocol::EvaluationSettings settings;
  std::string settings_sha256;
  EvaluationState state = EvaluationState::kFound;
  std::string lease_path;     ///< "" unless leased
  std::int64_t attempts = 0;  ///< started
  std::int64_t failures = 0;  ///< of those, failed by themselves (not interrupted by a stop)
  std::string next_try_at;    ///< in state failed: not before
  std::string created_at;
  bool asked = false;  ///< by a person or a job: no cadence leaves it out
};

/// A row of evaluations.
struct Evaluation : Standing {
  std::int64_t run_id = 0;
  std::string run;
  std::int64_t checkpoint_id = 0;
  std::string checkpoint;       ///< "checkpoint-500"
  std::string checkpoint_path;  ///< the folder's own
  std::string layout;
  std::int64_t generation = 1;
  std::string dtype;          ///< as asked for: "auto", "float32", …
  std::string compute_dtype;  ///< what the device held; "" until loaded
  std::string reason;
  std::string weights_sha256;  ///< "" until loaded
  std::string stage;           ///< of the last progress
  std::int64_t progress_done = 0;
  std::int64_t progress_total = 0;
  std::string updated_at;
  std::string finished_at;  ///< when scored, or when an end state was reached
  double seconds = 0;       ///< the evaluation's own, once scored

  /// 0..1; 1 once scored.
  double progress() const;
};

/// A row of attempts.
struct Attempt {
  std::int64_t id = 0;
  std::int64_t evaluation_id = 0;
  std::int64_t number = 0;  ///< 1, 2, …
  std::string started_at;
  std::string ended_at;    ///< "" while it runs
  std::string outcome;     ///< "running" | "scored" | "failed" | "interrupted" | "superseded"
  std::string stage;       ///< where it failed
  std::string error_kind;  ///< ErrorCode's name, or the evaluator's
  std::string message;
  std::string device;  ///< "cuda:0"
};

/// Why an attempt ended without a result.
struct AttemptFailure {
  std::string stage;
  std::string kind;
  std::string message;
};

/// A task of an evaluation without a number.
struct FailedTask {
  std::string task;
  std::string error;
  std::string kind;           ///< as JobError's; "" where none was told (a row before version 3)
  std::string circumstances;  ///< what it failed in: TaskResult::circumstances, begin_completion()
};

/// A row of the view `metrics`.
struct MetricRow {
  std::string run;
  std::int64_t step = 0;
  std::string checkpoint_type;
  std::string task;
  std::string metric;
  std::string filter;
  std::optional<double> value;
  std::optional<double> stderr_value;
  std::string stderr_source;
  std::string missing;
  bool higher_is_better = true;
  std::int64_t n = 0;
  std::string weights_sha256;
  std::string finished_at;
  std::int64_t evaluation_id = 0;
  std::string settings_sha256;
  /// Measured with the settings of today's configuration, and asked what is asked with them now.
  bool configured = true;
  std::string question = {};  ///< protocol::TaskResult::question; "" of a schema before version 10
};

/// Whether two numbers of a task are answers to the same, as far as is known.
bool is_same_question(const MetricRow& a, const MetricRow& b);

/// By which settings_sha256() the rows of today's configuration are known. Averages have one of
/// their own: over how many counts too.
struct ConfiguredSettings {
  std::string sha256;
  std::string average_sha256;
};

/// A line of metrics.jsonl, decided in the database before it is written.
struct Publication {
  std::int64_t seq = 0;
  std::int64_t evaluation_id = 0;
  std::string line;  ///< whole, without the newline; holds seq
  std::optional<std::int64_t> supersedes;
  std::string published_at;  ///< "" until everything is written
  /// What was written, as finish_publication() was told; empty before, and after Store::prune().
  std::vector<std::string> files;
  bool pruned() const { return !published_at.empty() && files.empty(); }
};

/// A line of metrics.jsonl that tells the score of a part, decided before it is written.
struct InterimLine {
  std::int64_t seq = 0;
  std::int64_t evaluation_id = 0;
  std::string key;   ///< "evaluation" of the line: unlike that of any result
  std::string line;  ///< whole, without the newline; holds seq
  std::optional<std::int64_t> supersedes;
};

/// An evaluation as its published files tell it: Store::take_published.
struct PublishedEvaluation {
  CheckpointObservation checkpoint;  ///< with the one kind, complete, that was measured
  std::int64_t generation = 1;       ///< of the checkpoint
  std::string kind;
  std::string dtype;
  std::string compute_dtype;
  protocol::EvaluationSettings settings;
  protocol::EvaluationResult result;
  std::vector<protocol::Scored> samples;
  std::string finished_at;
  Publication publication;  ///< without its evaluation_id
  std::vector<std::string> files;
};

/// A short text that changes when any file's name, inode, size or mtime does; the order of the
/// files and the device number (which changes when a file system is mounted anew) do not matter.
std::string content_fingerprint(std::vector<FileIdentity> files);

/// As in the column `files`: a JSON list of [path, inode, size, mtime in ns].
std::string encode_files(const std::vector<FileIdentity>& files);
/// Empty for what is no such text.
std::vector<FileIdentity> decode_files(std::string_view text);

/// SHA-256 of what a number depends on besides weights and task: the settings without the list of
/// tasks and without the batch size, and the dtype.
std::string settings_sha256(const protocol::EvaluationSettings& settings, std::string_view dtype);

}  // namespace evalcar::state
