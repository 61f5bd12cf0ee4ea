// Questions to the store. Every command that only reads opens one of these; the Store offers the
// same questions on its own connection.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/result.h"
#include "store/state/types.h"

namespace evalcar::state {

class Connection;

/// Which evaluations; empty members do not restrict.
struct EvaluationFilter {
  std::optional<std::int64_t> run_id;
  std::optional<std::int64_t> checkpoint_id;
  std::optional<std::int64_t> step;
  std::string kind;
  std::vector<EvaluationState> states;
  std::optional<std::vector<std::int64_t>> ids;
  bool with_lease = false;    ///< only rows that remember one
  bool only_partial = false;  ///< only published ones that lack some of their tasks
};

/// Which rows of the view `metrics`; empty members do not restrict.
struct MetricFilter {
  std::string run;
  std::string task;
  std::string metric;
  std::string checkpoint_type;
};

/// Not thread-safe: one thread, the one that opened it. Every call is one read transaction.
class Reader {
 public:
  /// Opens read-only, never writes, never checkpoints the WAL. kNotFound: no such file;
  /// kUnsupported: a newer (or older, not yet migrated) schema; kCorruption: not a database, or
  /// damaged.
  static Result<Reader> open(const std::string& path);

  /// Used by Store: the same questions over its connection.
  explicit Reader(std::shared_ptr<Connection> connection);

  /// All runs, oldest first.
  Result<std::vector<Run>> runs() const;
  /// All generations of checkpoints of a run, by step, then generation.
  Result<std::vector<Checkpoint>> checkpoints(std::int64_t run_id) const;
  /// kNotFound if there is none.
  Result<Checkpoint> checkpoint(std::int64_t checkpoint_id) const;
  /// Why a kind of a checkpoint is not complete; "" if it is complete or not known.
  Result<std::string> incomplete_reason(std::int64_t checkpoint_id, std::string_view kind) const;
  /// Another number after each change through this connection: of the store's own reader, after
  /// each change of the database.
  std::int64_t changes() const;
  /// Another number after each change of the database through any other connection. It costs next
  /// to nothing to ask.
  Result<std::int64_t> data_version() const;
  /// Which evaluations may have changed since the last call; absent: any of them, as at the first
  /// call. Of a store's own reader, where one asker keeps rows up to date: whoever asks next is
  /// told of what comes after. What an error keeps from being told is told by the next call.
  Result<std::optional<std::set<std::int64_t>>> changed_evaluations() const;
  /// Another number whenever the view `metrics` says something else of this run: it looks at which
  /// results its rows are of, which never change, and whether those count as configured; at none of
  /// their numbers.
  Result<std::uint64_t> numbers_version(std::int64_t run_id) const;
  /// As Store::set_unfinished() was told.
  Result<std::vector<UnfinishedFolder>> unfinished(std::int64_t run_id) const;
  /// What was complete of the newest generation of each folder, there or gone; not of weights that
  /// lay elsewhere (lies_elsewhere).
  Result<std::vector<KnownKind>> known_kinds(std::int64_t run_id) const;
  /// The files of a kind of a checkpoint, as they were when it was judged complete; empty if it was
  /// not, or the row is of a schema before version 2.
  Result<std::vector<FileIdentity>> files_of(std::int64_t checkpoint_id,
                                             std::string_view kind) const;
  /// By name, those checkpoints of a run that were written again: the newest generation of each.
  /// `of_folders`: not counting weights that lay elsewhere (lies_elsewhere).
  Result<std::map<std::string, std::int64_t>> written_again(std::int64_t run_id,
                                                            bool of_folders = false) const;
  /// Where the kept weights of this kind are ("" if not kept): Store::set_kept_path.
  Result<std::string> kept_path(std::int64_t checkpoint_id, std::string_view kind) const;

  /// By step, then generation, then kind, then id.
  Result<std::vector<Evaluation>> evaluations(const EvaluationFilter& filter = {}) const;
  /// The same, one at a time: a long run has many. Stops at the first error.
  Status for_each_evaluation(const EvaluationFilter& filter,
                             const std::function<void(const Evaluation& row)>& take) const;
  /// Only where they stand, in no order: a fraction of the work, for whoever asks of many. What
  /// `take` is given is of this call of it alone.
  Status for_each_standing(const EvaluationFilter& filter,
                           const std::function<void(const Standing& row)>& take) const;
  /// The leases of the rows that `filter` names, in no order; of several rows that have one lease,
  /// as often. A fraction of the work again.
  Result<std::vector<std::string>> lease_paths(const EvaluationFilter& filter) const;
  /// When the newest file of the weights of each was written, by evaluation, in ns; of an average,
  /// that of its newest checkpoint. Those of which that is not known are left out.
  Result<std::map<std::int64_t, std::int64_t>> written_at(const EvaluationFilter& filter) const;
  /// The same of one; 0: not known.
  Result<std::int64_t> written_at(std::int64_t evaluation_id) const;
  /// The newest step of a run whose folder is there, as far as is known.
  Result<std::optional<std::int64_t>> newest_step_there(std::int64_t run_id) const;
  /// kNotFound if there is none.
  Result<Evaluation> evaluation(std::int64_t evaluation_id) const;
  /// By number.
  Result<std::vector<Attempt>> attempts(std::int64_t evaluation_id) const;

  /// Answers of an interrupted attempt that are not scored yet, by task and doc_id; those without a
  /// fingerprint (of a schema before version 4) are left out.
  Result<std::vector<protocol::Answered>> answers(std::int64_t evaluation_id) const;
  /// What the evaluator reported, as stored; kNotFound unless scored or published. `id` is empty.
  Result<protocol::EvaluationResult> result(std::int64_t evaluation_id) const;
  /// An earlier generation of its checkpoint was measured with the same weights, tasks and
  /// settings: where others were measured between, the weights came back.
  Result<bool> is_return(std::int64_t evaluation_id) const;
  /// The tasks of an evaluation that was scored which have no number, in their order.
  Result<std::vector<FailedTask>> failed_tasks(std::int64_t evaluation_id) const;
  /// What is said against the numbers of a run's evaluations ("docvqa_val: all 200 answers are the
  /// same"), by evaluation; absent: of all runs.
  Result<std::map<std::int64_t, std::vector<std::string>>> flags(
      std::optional<std::int64_t> run_id) const;
  /// Those that have one, in any state.
  Result<std::vector<std::string>> measured_tasks(std::int64_t evaluation_id) const;
  /// Calls `line` with each scored sample's JSON line of one task, by doc_id; stops at its first
  /// error.
  Status for_each_sample(std::int64_t evaluation_id, const std::string& task,
                         const std::function<Status(std::string_view line)>& line) const;

  /// The names of a sample's pictures (protocol::Scored); none where none were told.
  Result<std::vector<std::string>> sample_pictures(std::int64_t evaluation_id,
                                                   const std::string& task,
                                                   std::int64_t doc_id) const;
  /// Calls `take` with each document of the evaluation's result that has pictures, and their names
  /// as JSON.
  Status for_each_document_pictures(
      std::int64_t evaluation_id, const std::string& task,
      const std::function<void(std::int64_t doc_id, std::string_view names)>& take) const;
  /// Calls `take` with each name that any sample has; some are told more than once.
  Status for_each_picture(const std::function<void(std::string_view name)>& take) const;

  /// How many scored samples are stored as made by this evaluation.
  Result<std::int64_t> sample_count(std::int64_t evaluation_id) const;

  /// Rows of the view `metrics`: the current number of each run, step, kind, task and metric.
  Result<std::vector<MetricRow>> metrics(const MetricFilter& filter = {}) const;
  /// The same, one at a time: a long run has many.
  Status for_each_metric(const MetricFilter& filter,
                         const std::function<void(const MetricRow& row)>& take) const;

  /// The line of an evaluation, if one was decided.
  Result<std::optional<Publication>> publication(std::int64_t evaluation_id) const;
  /// All of a run, by seq.
  Result<std::vector<Publication>> publications(std::int64_t run_id) const;
  /// Those of a run behind this seq, by seq; at most `limit`, and no others are read: a long run's
  /// are looked at in pages.
  Result<std::vector<Publication>> publications_after(std::int64_t run_id, std::int64_t seq,
                                                      std::size_t limit) const;
  /// How many lines of results were decided in a run.
  Result<std::int64_t> publication_count(std::int64_t run_id) const;
  /// The lines of a run that tell the score of a part, in pages as publications_after().
  Result<std::vector<InterimLine>> interim_lines_after(std::int64_t run_id, std::int64_t seq,
                                                       std::size_t limit) const;
  /// A line of this evaluation with this key was decided.
  Result<bool> has_interim(std::int64_t evaluation_id, const std::string& key) const;
  /// How much of an evaluation its latest interim score is of; absent: it has none, or the device
  /// failed since (protocol::is_device_fault), so that none is to be believed.
  Result<std::optional<double>> interim_fraction(std::int64_t evaluation_id) const;
  /// The tasks that have a number at the step and kind of this evaluation, whichever made it.
  Result<std::vector<std::string>> tasks_with_numbers(std::int64_t evaluation_id) const;

 private:
  std::shared_ptr<Connection> connection_;
};

}  // namespace evalcar::state
