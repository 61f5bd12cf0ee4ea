// Handing results out, again and again until it succeeds: at once when an evaluation is scored, and
// in later turns what a kill, a full disk or a missing folder left undone.
#pragma once

#include <optional>
#include <string>

#include "agent/config/settings.h"
#include "agent/publish/publisher.h"
#include "agent/request/desk.h"
#include "agent/run/current_run.h"
#include "agent/run/disk_view.h"
#include "agent/run/slice.h"
#include "agent/run/surroundings.h"

namespace evalcar::run {

/// Not thread-safe. All references must outlive it.
class Publishing {
 public:
  Publishing(const Surroundings& around, const config::Settings& settings, state::Store& store,
             CurrentRun& run, const DiskView& view);

  /// After record_result. An error leaves it scored; a later turn publishes it.
  Status publish(const state::Evaluation& row);
  /// While it runs: the score of a part. True: it was told, now or before. An error leaves it to
  /// the caller to try again.
  Result<bool> publish_interim(const state::Evaluation& row, const protocol::Interim& interim);
  /// Its line is decided already.
  Result<bool> knows_interim(const state::Evaluation& row, const protocol::Interim& interim) const {
    return publisher_.knows_interim(row.id, interim);
  }
  /// The files that a job is answered with: those that are published, if they are of just its tasks
  /// and lie where it wants them; else others of their own.
  Result<publish::ResultsFiles> files_for(const request::JobPlan& plan,
                                          const state::Evaluation& row,
                                          const protocol::EvaluationResult& part);
  /// Publishes what is left over, if that is due. There is a run.
  Status step();
  /// best.json once more, where it may say something else.
  Status write_best();
  /// There may be something to publish, or to complete: the next step() looks.
  void look_again() { again_ = true; }
  /// The same, but not before `time`.
  void look_again_at(MonotonicTime time);
  /// There is no run: nothing to publish.
  void rest() { again_ = false; }
  /// Something is left over, as far as is known.
  bool pending() const { return again_; }
  /// No more tries are worth waiting for; the agent goes on trying as long as it runs.
  bool failing() const;
  /// When step() has something to do, while pending().
  MonotonicTime due() const { return due_; }
  /// Where files are published: publish.dir, else our folder.
  const std::string& dir() const { return dir_; }

 private:
  Result<std::vector<state::Evaluation>> scored_rows() const;
  Status not_published(const Error& error);
  Status settle_takeover();
  void judge_direction();
  std::optional<std::int64_t> lag_of(const state::Evaluation& row) const;

  const Surroundings& around_;
  const config::Settings& settings_;
  state::Store& store_;
  CurrentRun& run_;
  const DiskView& view_;
  std::string dir_;
  publish::Publisher publisher_;
  bool again_ = true;
  bool direction_judged_ = false;
  std::int64_t failures_ = 0;  ///< tries in a row
  MonotonicTime due_{};
  std::optional<Slice> slice_;  ///< while something is published
};

}  // namespace evalcar::run
