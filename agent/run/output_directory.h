// One watched output directory: what the watcher sees becomes rows of the store and leases on disk.
//
//   step():  Inbox       what do commands ask?
//            CurrentRun  which run is it?        Watcher   what changed on disk?
//            Recorder    rows, leases            DiskGuard is there room for the leases?
//            Publishing  what is left to hand out
//
// Everything that matters is in the store; the members here can be lost at any time and are found
// again by a look at the disk and at the rows. Nothing is created in the output directory before
// its first checkpoint folder exists.
#pragma once

#include <poll.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/run/directory_parts.h"

namespace evalcar::run {

/// Not thread-safe.
class OutputDirectory : private DirectoryParts {
 public:
  /// Opens the database and recovers what a kill interrupted. kUnavailable: another agent has it.
  static Result<std::unique_ptr<OutputDirectory>> open(const Surroundings& around,
                                                       const config::Settings& settings,
                                                       const std::string& path);

  /// One turn: do what commands ask, look, record, lease, publish what is left over, guard the
  /// disk. An error is of the moment (a full disk, a locked file): the next turn tries again.
  /// kUnavailable with `fatal()`: another agent owns the directory.
  Status step();
  std::chrono::milliseconds until_due() const;
  void add_descriptors(std::vector<pollfd>& descriptors) const;
  bool fatal() const { return run_.fatal(); }
  /// Why it is that; else "".
  const std::string& fatal_reason() const { return run_.fatal_reason(); }
  /// The first look is over, whatever it saw.
  bool looked() const { return watcher_.looked(); }

  /// Evaluations that wait for their turn. Those given up by the policy are marked here.
  Result<std::vector<schedule::Candidate>> waiting();
  /// False: a slice was cut, and some of them still wait; whoever measured another one now would
  /// measure them after it.
  Result<bool> supersede(const std::vector<std::int64_t>& evaluations) {
    Slice slice(around_);
    return outcomes_.supersede(evaluations, slice);
  }
  /// How a job on it stands (Requested::look), undecided where the directory cannot tell now;
  /// absent: there is no such checkpoint.
  Result<std::optional<request::JobNews>> look_at_job(const request::JobPlan& plan,
                                                      const Requested::Asked& asked);
  /// The evaluation that only jobs of this plan want; absent: the configured one answers it.
  Result<std::optional<state::Evaluation>> requested_row(const request::JobPlan& plan) const {
    return requested_.own_row(plan);
  }
  /// The evaluations that open jobs want, and those that no job wants any more, which end; but not
  /// the one that runs.
  Status keep_requested(std::set<std::int64_t> wanted, const std::set<std::int64_t>& given_up);
  /// Nobody wants the evaluation that ran.
  Status drop_requested(std::int64_t evaluation);
  /// How many waited at the last look.
  std::size_t waiting_count() const { return waiting_.count(); }
  /// An evaluation's lease, taken now if need be. Absent: it cannot run now, or never; the row says
  /// why.
  Result<std::optional<stage::Lease>> lease_of(const state::Evaluation& row) {
    return leases_.of(row);
  }
  /// As Leases::dir_of.
  std::string leased_at(const state::Evaluation& row) const { return leases_.dir_of(row); }
  /// Gives the lease back, or lets it be ranked first.
  void release(const state::Evaluation& row) {
    best_.look_again();
    leases_.release(row);
  }
  /// As Outcomes::fail.
  Status fail(const state::Evaluation& row, const state::AttemptFailure& failure, bool retryable) {
    return outcomes_.fail(row, failure, retryable);
  }
  /// As Outcomes::put_back.
  Result<bool> put_back(const state::Evaluation& row, const state::AttemptFailure& failure) {
    return outcomes_.put_back(row, failure);
  }
  /// Nothing waits: takes up the rest of an evaluation that was published in part, if that can be
  /// measured now. True: it did.
  Result<bool> complete_one(const Circumstances& now);
  /// How many evaluations of it were published in part and could be completed, at the last look.
  std::size_t partial_count() const { return completion_.waiting(); }
  /// It is not chosen before then: others get their turn first.
  void rest(std::int64_t evaluation, MonotonicTime until) { waiting_.rest(evaluation, until); }
  /// The same of one whose tasks' data are missing.
  void rest_without_data(const state::Evaluation& row) { waiting_.rest_without_data(row); }
  /// How many of those that waited at the last look rest without their data.
  std::size_t waiting_without_data() const { return waiting_.count_without_data(); }
  /// All of them may be chosen again.
  void end_rest() { waiting_.end_rest(); }
  /// After record_result. An error leaves it scored; a later turn publishes it.
  Status publish(const state::Evaluation& row);
  /// While it runs: the score of a part, as Publishing tells it.
  Result<bool> publish_interim(const state::Evaluation& row, const protocol::Interim& interim) {
    return publishing_.publish_interim(row, interim);
  }
  Result<bool> knows_interim(const state::Evaluation& row, const protocol::Interim& interim) const {
    return publishing_.knows_interim(row, interim);
  }
  /// Whose files were replaced since the last call: running jobs on them must end.
  std::set<std::int64_t> take_superseded() { return std::exchange(in_flight_.superseded, {}); }

  /// Whether a person asked for another try since the last call: whatever stood in the way may be
  /// repaired.
  bool take_retry_asked() {
    const bool asked = answers_.take_retry_asked();
    if (asked) end_rest();
    return asked;
  }

  /// Nothing is being written, nothing waits.
  Result<bool> quiet();
  /// Training has ended, and long enough ago that whatever it left was seen.
  bool training_over() const {
    return end_.since().has_value() &&
           around_.clock.monotonic_now() - *end_.since() >= settings_.watch.poll_interval;
  }
  /// Nothing more will come: the complete checkpoint that was written last is the last, and wanted
  /// as such. True: it was left out before, and waits to be evaluated now.
  Result<bool> take_up_last();
  /// At the end of --once: what is torn ends as quarantined, with its reason.
  Status close_torn() { return recorder_.close_torn(); }
  Result<Tally> tally() const {
    return run_.known() ? tally_of(store_->read(), wanted_, run_.id()) : Result<Tally>(Tally());
  }
  /// What keeps anything here from being measured or handed out, as of the last turn; "": nothing
  /// of this directory.
  std::string hindrance() const { return DirectoryParts::hindrance(turn_trouble_); }
  /// Writes status.json, if it is due in this turn.
  void write_status(const publish::AgentFacts& facts, StatusTurn turn);

  state::Store& store() { return *store_; }
  stage::Stage& stage() { return stage_; }
  const std::string& path() const { return path_; }
  /// Our folder has to move to where another agent, made anew, finds it, or the database was
  /// removed and has to be made again: this one does nothing more.
  bool must_begin_anew() const { return misplaced_.found() || lost_database_; }
  /// The evaluation that runs now: its lease is not given up for disk space.
  void set_active(std::optional<std::int64_t> evaluation) { in_flight_.active = evaluation; }
  /// Monotonic time of the last change that was seen.
  MonotonicTime last_news() const { return last_news_; }

 private:
  OutputDirectory(const Surroundings& around, const config::Settings& settings, Opened opened);

  Result<bool> nothing_left();
  std::string why_cannot_tell(const Requested::Asked& asked) const;
  bool silent();
  void take_requests();
  void look_at_end();
  void look_at_places();
  bool looked_at() const;
  Status follow_run();
  void forget_run();
  void hold_sightings();
  Status record_sightings();
  Status take_late_leases();
  void take_snapshots();
  Result<bool> keep_leases();
  bool knows_neighbours() const;
  Status guard_disk();
  bool is_beginning() const;
  bool is_cut_short() const;

  std::string snapshot_trouble_;
  bool beginning_ = true;         ///< is_beginning(), after the last turn
  bool vanished_marked_ = false;  ///< Recorder::mark_vanished was done
  bool vanished_ended_ = false;   ///< Recorder::end_vanished was done
  std::string turn_trouble_;      ///< why the last turn could not do what it had to
  bool lost_database_ = false;
  MonotonicTime retry_at_{};
  MonotonicTime last_news_{};
};

}  // namespace evalcar::run
