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
  bool asked = false;       ///< by a person or a job: not given up for a newer one
  /// When the newest file of its weights was written; 0: not known.
  std::int64_t written_ns = 0;
  bool failed = false;  ///< an attempt of it was, and it may fail again
};

/// A checkpoint that may take the place of another one.
struct Save {
  std::int64_t step = 0;
  std::int64_t written_ns = 0;
};

/// Of a higher step, and not older on disk: folders of an earlier training may lie beside those of
/// one that was begun again, or resumed, below them.
bool is_newer(const Save& one, const Save& other);

struct Choice {
  std::optional<std::int64_t> next;
  /// `latest` only: a newer one (is_newer) of the same kind and series could be begun now, for the
  /// first time or after a stop. One that failed, or waits for its next try, may never be measured.
  std::vector<std::int64_t> superseded;
};

/// `newest-first` (then backfill), `every` (oldest first), `latest` (the newest of each kind and
/// series, those that it has overtaken are given up unless a person asked for them). Within a step
/// regular comes before EMA.
Choice choose(std::span<const Candidate> waiting, config::Policy policy);

/// The newest step that is newer (is_newer) and could be evaluated now for the first time: one that
/// was tried may fail again, and one that was put back for another has had its turn.
std::optional<std::int64_t> newer_than(const Save& running, std::span<const Candidate> waiting);

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
