// What the parts of an output directory ask of an evaluation's row.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "agent/log/event.h"
#include "agent/stage/stage.h"
#include "agent/watch/watcher.h"
#include "store/state/store.h"

namespace evalcar::run {

/// Reasons that the configuration or the trainer caused begin with or contain these: see
/// revivable().
inline constexpr std::string_view kNotWanted = "not wanted: ";
inline constexpr std::string_view kConfigurationChanged = "the configuration changed";
inline constexpr std::string_view kMadeAnew = "its output directory was made anew";
inline constexpr std::string_view kEmaNotStarted = "EMA has not started";
inline constexpr std::string_view kNotInCheckpoint = "these weights are not in this checkpoint";

/// "regular", "ema"; nothing else is seen on disk.
std::string kind_of(const watch::Sighting& seen);
/// "checkpoint-500 ema", for the log.
std::string title(const state::Evaluation& row);
/// Something happened to this evaluation: the event `name` with run, step, kind and evaluation.
log::Event event_of(std::string_view name, const state::Evaluation& row);
/// "checkpoint-500", by `pattern` (watch.pattern).
std::string folder_name(const std::string& pattern, std::int64_t step);
/// Weights alone, that lay elsewhere than the checkpoint of their step would (snapshots.h).
bool is_snapshot(const state::Checkpoint& checkpoint);
/// "500-1-ema": the folder's name of a lease.
std::string lease_name_of(std::int64_t step, std::int64_t generation, const std::string& kind);
/// What such a name says; of another folder's name, no kind that there is and no step.
std::string kind_of_lease(const std::string& name);
std::optional<std::int64_t> step_of_lease(const std::string& name);
/// What takes each other's place under the policy `latest`: evaluations of one kind with the same
/// tasks. No newer checkpoint takes the place of what a job asks for.
std::string series_of(const state::Standing& row);
/// Why that ended one.
inline constexpr std::string_view kNewerCame =
    "a newer checkpoint came (evaluate.policy = \"latest\")";
/// Not ended, not running, not measured.
inline const std::vector<state::EvaluationState> kWaitingStates = {
    state::EvaluationState::kFound, state::EvaluationState::kComplete,
    state::EvaluationState::kLeased, state::EvaluationState::kFailed};
/// Neither ended nor measured.
bool is_open(state::EvaluationState state);
/// Published without some of its tasks: the rest may still be measured.
bool is_partial(const state::Evaluation& row);
/// The rows that may hold a lease, oldest first: the open ones, and those whose rest is not
/// measured yet. `restrict`: its states are ignored.
Result<std::vector<state::Evaluation>> rows_with_lease(const state::Reader& rows,
                                                       state::EvaluationFilter restrict = {});
/// The folders' names of their leases, whichever run they are of.
Result<std::set<std::string>> lease_names_of_rows(const state::Reader& rows,
                                                  const stage::Stage& stage);
/// Whether one of them has the lease of this name (lease_name_of): of one, far less is read.
Result<bool> needs_lease(const state::Reader& rows, const stage::Stage& stage,
                         const std::string& name);
/// Whether the lease `dir` of an average is of as many checkpoints as the row says. Those of other
/// configurations have the same name. kCorruption if it is not.
Status check_number_of_members(const stage::Stage& stage, const std::string& dir,
                               const state::Evaluation& row);
/// An end that the configuration or the trainer caused, not a failure or a person: what causes it
/// may be over.
bool revivable(const state::Evaluation& row);
/// Why an evaluation of an older generation ended.
std::string written_again(const std::string& checkpoint, std::int64_t generation);
/// Ends an evaluation, and says so.
Status end_evaluation(state::Store& store, std::int64_t evaluation, state::EvaluationState to,
                      const std::string& reason);

/// The rest of a partial row will not be measured, unless its checkpoint is still there: says so.
Status leave_in_part(state::Store& store, const state::Evaluation& row, const std::string& reason);

}  // namespace evalcar::run
