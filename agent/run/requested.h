// What jobs ask of one output directory: which evaluation measures it, and how it stands.
//
// A job that asks for what the configuration measures anyway is answered by that evaluation. Any
// other is an evaluation of its own (settings.requested): nothing of it enters the configured
// series, its line, its best or its views.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "agent/request/desk.h"
#include "agent/run/current_run.h"
#include "agent/run/disk_view.h"
#include "agent/run/leases.h"
#include "agent/run/publishing.h"
#include "agent/run/wanted.h"
#include "store/state/store.h"

namespace evalcar::run {

/// Not thread-safe. All references must outlive it.
class Requested {
 public:
  Requested(const FileSystem& files, state::Store& store, const CurrentRun& run,
            const Wanted& wanted, Leases& leases, Publishing& publishing, const DiskView& view,
            watch::Watcher& watcher)
      : files_(files),
        store_(store),
        run_(run),
        wanted_(wanted),
        leases_(leases),
        publishing_(publishing),
        view_(view),
        watcher_(watcher) {}

  /// Whether its checkpoint was ever seen.
  Result<bool> knows(const request::JobPlan& plan) const {
    EVALCAR_ASSIGN_OR_RETURN(const auto checkpoint, checkpoint_of(plan));
    return checkpoint.has_value();
  }
  struct Asked {
    bool first = true;      ///< an evaluation that ended without numbers gets another chance
    MonotonicTime since{};  ///< when the job came: what was seen before may be mended since
  };
  /// How a job stands; what it needs is begun. nullopt: it cannot have it yet, since its weights
  /// were not seen by this process, and it still is the first time.
  Result<std::optional<request::JobNews>> look(const request::JobPlan& plan, const Asked& asked);
  /// The evaluation that measures a job, if it is one that nobody else wants.
  Result<std::optional<state::Evaluation>> own_row(const request::JobPlan& plan) const;

  /// The evaluations of jobs that are open: what nobody asks for any more does not run.
  /// True: they are others than before.
  bool keep_open(std::set<std::int64_t> evaluations) {
    return std::exchange(open_, std::move(evaluations)) != open_;
  }
  bool is_open(std::int64_t evaluation) const { return open_.contains(evaluation); }
  /// Nobody asks for it any more.
  Status drop(const state::Evaluation& row);

 private:
  Result<std::optional<state::Checkpoint>> checkpoint_of(const request::JobPlan& plan) const;
  Result<std::optional<request::JobNews>> not_yet(const request::JobPlan& plan,
                                                  const state::Evaluation& row, const Asked& asked);
  Result<bool> is_overwritten(const state::Evaluation& row) const;
  state::NewEvaluation row_for(const request::JobPlan& plan, std::int64_t checkpoint_id) const;
  Result<request::JobNews> standing(const request::JobPlan& plan, const state::Evaluation& row);
  /// Brings it on its way; "" or why it can never go there.
  Result<std::string> begin(state::Evaluation& row, const state::Checkpoint& checkpoint,
                            const Asked& asked);
  std::string why_never(const state::Evaluation& row, const Asked& asked) const;
  /// Its folder is on the disk, whatever the watcher saw; or may be, where that cannot be asked.
  bool is_there(const state::Evaluation& row) const {
    return files_.info_followed(row.checkpoint_path).has_value() ||
           !files_.answers(row.checkpoint_path).has_value();
  }
  std::string why_broken(const state::Evaluation& row, const Asked& asked) const;
  Result<request::JobNews> finished(const request::JobPlan& plan, const state::Evaluation& row);
  Result<request::JobNews> of_twin(const request::JobPlan& plan, const state::Evaluation& row);

  const FileSystem& files_;
  state::Store& store_;
  const CurrentRun& run_;
  const Wanted& wanted_;
  Leases& leases_;
  Publishing& publishing_;
  const DiskView& view_;
  watch::Watcher& watcher_;
  std::set<std::int64_t> open_;
};

}  // namespace evalcar::run
