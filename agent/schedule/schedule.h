// Which evaluation is next. Pure functions over rows: no clock, no disk, no database.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agent/config/settings.h"

namespace evalcar::schedule {

/// An evaluation that waits for its turn. Regular and EMA weights of a step are two of them.
struct Candidate {
  std::int64_t id = 0;
  std::int64_t step = 0;
  std::string kind;   ///< "regular" | "ema"
  bool ready = true;  ///< false: waiting for its next try; it keeps its place, but not its turn
  std::string series = {};  ///< evaluations of other tasks, of another cadence, are another one
  bool tried = false;       ///< an attempt of it was begun before
  bool asked = false;       ///< by a person: not given up for a newer one
};

struct Choice {
  std::optional<std::int64_t> next;
  std::vector<std::int64_t> superseded;  ///< `latest` only: a newer one of the same kind waits
};

/// `newest-first` (then backfill), `every` (oldest first), `latest` (the newest of each kind and
/// series, the others are given up unless a person asked for them). Within a step regular comes
/// before EMA.
Choice choose(std::span<const Candidate> waiting, config::Policy policy);

/// The newest step above `step` that could be evaluated now for the first time: one that was tried
/// may fail again, and one that was put back for another has had its turn.
std::optional<std::int64_t> newer_than(std::int64_t step, std::span<const Candidate> waiting);

/// Whether a step is evaluated at all, and if not, why.
struct Cadence {
  config::EvalStrategy strategy = config::EvalStrategy::kSteps;
  std::int64_t eval_steps = 0;  ///< 0 = all
  std::int64_t every_nth = 1;   ///< the first checkpoint, and each n-th after it
};

/// A checkpoint, as far as a cadence asks.
struct Occasion {
  std::int64_t step = 0;
  std::int64_t position = 0;  ///< 0 for the run's first checkpoint, and so on
  /// The same, counting only the checkpoints that the cadence of all lets through.
  std::int64_t position_of_wanted = 0;
  bool is_last = false;  ///< training has ended with it, as far as is known
  /// Of trainer_state.json: how many epochs were done at this step, e.g. 1.98; absent: not known.
  std::optional<double> epoch;
  std::int64_t save_steps =
      0;  ///< how many steps the trainer lets pass between saves; 0: not known
};

/// "" if wanted, else the reason. What has to be known and is not speaks for the checkpoint.
std::string why_not_wanted(const Cadence& cadence, const Occasion& occasion);

/// The same of some tasks, which are measured more seldom than the others: of what the cadence of
/// all wants, what theirs wants too. `tasks`: their names, for people.
std::string why_tasks_not_wanted(const config::TaskCadence& cadence, const std::string& tasks,
                                 const Occasion& occasion);

}  // namespace evalcar::schedule
