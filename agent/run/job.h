// One evaluation, from its lease to its published result, on the supervisor's evaluator.
//
// Every answer goes to the store as it comes, so that a kill costs at most one batch; the result is
// taken only if the files are the ones that were leased. When the store refuses (a full disk), the
// job keeps what it has and tries again: nothing that was computed is lost.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/report/pace.h"
#include "agent/run/fresh_answers.h"
#include "agent/run/interim_scores.h"
#include "agent/run/lease_check.h"
#include "agent/run/output_directory.h"
#include "agent/supervise/supervisor.h"

namespace evalcar::run {

/// Not thread-safe.
class Job {
 public:
  /// Opens an attempt and gives the job to the supervisor, which is ready(). `evaluator`: which
  /// program it is (identity_of_program()). Tasks that have numbers already are not measured again.
  static Result<std::unique_ptr<Job>> begin(const Surroundings& around, OutputDirectory& directory,
                                            supervise::Supervisor& supervisor,
                                            const config::Settings& settings, state::Evaluation row,
                                            stage::Lease lease, std::string evaluator = {});

  /// Something the supervisor said.
  void take(supervise::JobEvent event);
  /// Writes what is due and ends the job if it can. An error is of the moment.
  Status step();
  /// The row has left the job's hands.
  bool done() const { return done_; }
  /// The agent stops: what is known is kept, and the row goes back to `leased`.
  void interrupt();
  /// The row was superseded by somebody else: only the evaluator has to let go.
  void abandon();

  /// Something is known of it that is worth its time: it may make way for a newer checkpoint.
  bool may_yield() const;
  /// It goes back to the queue with its answers, for the reason. An error: it goes on.
  Status yield(const std::string& reason);

  /// Why it ended, if that was not its own fault: done(), and the row waits.
  const std::optional<supervise::JobFailed>& obstacle() const { return obstacle_; }
  /// Some or all of its tasks failed for their data.
  bool missed_data() const { return missed_data_; }

  const state::Evaluation& row() const { return row_; }
  OutputDirectory& directory() const { return directory_; }
  /// Where the evaluator's work stands; absent: it has said nothing yet, or files are hashed again.
  const std::optional<report::WorkDone>& work() const;
  /// "evaluating docvqa_val 120/5349, 31/s, 2 min 48 s left": for people.
  std::string progress(bool with_bar) const;
  void add_descriptors(std::vector<pollfd>& descriptors) const;
  bool hashing() const { return lease_check_.hashing() || interims_.hashing(); }
  /// When answers that came are to be written; absent: there are none.
  std::optional<MonotonicTime> flush_due() const;

 private:
  Job(const Surroundings& around, OutputDirectory& directory, supervise::Supervisor& supervisor,
      const config::Settings& settings, state::Evaluation row, stage::Lease lease,
      bool interim_told);

  Status record_loaded();
  Status record_prepared();
  Status take_numbers_of(std::int64_t earlier);
  void take_result(protocol::EvaluationResult result);
  Status write_progress();
  Status tell_interims();
  Status finish();
  void excuse_if_rewritten(supervise::JobFailed& failure) const;
  Status finish_failed();
  Status record_and_publish();
  void fail(supervise::JobFailed failure);

  const Surroundings& around_;
  OutputDirectory& directory_;
  supervise::Supervisor& supervisor_;
  state::Evaluation row_;
  stage::Lease lease_;
  FreshAnswers answers_;
  std::optional<protocol::Progress> progress_;
  bool progress_written_ = true;
  report::Pace pace_;
  std::optional<protocol::Loaded> loaded_;      ///< told, not yet recorded
  std::string weights_sha256_;                  ///< once recorded
  std::optional<protocol::Prepared> prepared_;  ///< told, not yet recorded
  std::int64_t known_answers_ = 0;              ///< sent along
  InterimScores interims_;
  std::optional<protocol::EvaluationResult> result_;
  std::optional<supervise::JobFailed> failure_;
  std::optional<supervise::JobFailed> obstacle_;
  std::string evaluator_;  ///< identity_of_program()
  bool missed_data_ = false;
  bool in_part_ = false;  ///< the result lacks tasks: its lease is kept for them
  LeaseCheck lease_check_;
  bool recorded_ = false;
  bool done_ = false;
  MonotonicTime progress_at_{};
};

}  // namespace evalcar::run
