// Hands the numbers out: from the database to the files that trainers and people read. The database
// is the truth: whatever a kill or a full disk left undone is done again from it, and what is
// already in a file is recognised, so that no line is ever written twice.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/publish/results_files.h"
#include "store/base/clock.h"
#include "store/base/file_system.h"
#include "store/base/result.h"
#include "store/state/store.h"

namespace evalcar::publish {

struct PublisherOptions {
  std::string dir;          ///< `<output_dir>/_evalcar`, or publish.dir
  bool tensorboard = true;  ///< event files in `<dir>/tensorboard/`
  std::string metric_for_best_model = "eval/docvqa_val/anls";  ///< "eval/<task>/<metric>"
  std::optional<bool> greater_is_better;  ///< absent: what the metric says of itself
  /// Other names of a metric ("exact_match" → {"accuracy"}), accepted in metric_for_best_model;
  /// null = none known.
  std::function<std::vector<std::string>(const std::string& task, const std::string& metric)>
      aliases;
  bool publish_aliases = false;  ///< publish.aliases: log them beside the metric's own name
  bool log_samples = true;       ///< evaluate.log_samples: the `_samples_<task>.jsonl` files
  std::string version;           ///< of the program, for the results files
  std::string device;            ///< "cuda:0", for the results files; may be empty
  /// Whether this process may still publish: asked before each file is made, and of metrics.jsonl
  /// once more when it is open, right before the line is written; null = always.
  std::function<Status()> fence;
  /// Asked behind each evaluation of publish_pending() and each piece of a long file: true: the
  /// rest is for another call (kCancelled); null = never.
  std::function<bool()> enough;
};

/// What one publication did.
struct Published {
  std::int64_t seq = 0;
  std::string results_file;
  bool line_was_there = false;  ///< an earlier, interrupted publication had written it
  bool is_best = false;         ///< it is now the best of its kind
};

/// Not thread-safe: the store's thread. Nothing is created before the first publish(): the output
/// directory may have to stay empty until its first checkpoint.
class Publisher {
 public:
  /// `files`, `clock` and `store` must outlive it.
  Publisher(FileSystem& files, const Clock& clock, state::Store& store, PublisherOptions options);
  ~Publisher();
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

  /// Writes everything of a scored evaluation, then marks it published: results files, the line of
  /// metrics.jsonl, event file, best.json. `lag_steps`: how far training is ahead, if known. On an
  /// error the evaluation stays `scored`; call again later. seq rises in the file: while an earlier
  /// line cannot be written, no other is; what was scored before it of the same step and kind goes
  /// first. Repeating is harmless.
  Result<Published> publish(std::int64_t evaluation_id, std::optional<std::int64_t> lag_steps);
  /// Results files of some tasks of an evaluation that has numbers, in a folder of their own: for
  /// whoever asked for them. Repeating writes the same files.
  Result<ResultsFiles> write_files_for(std::int64_t evaluation_id,
                                       const protocol::EvaluationResult& part,
                                       const std::string& dir, bool with_samples);
  /// `<dir>/results/<step>/<kind>`.
  std::string results_dir(const state::Evaluation& evaluation) const;
  /// Whether that score's line is decided already: it is not judged again then.
  Result<bool> knows_interim(std::int64_t evaluation_id, protocol::Interim interim) const;
  /// Tells the score of a part of an evaluation that runs: one line of metrics.jsonl, and nothing
  /// else. Tasks that have a number at this step and kind already are left out; without another,
  /// nothing is told and the seq is absent. Repeating is harmless; where the line cannot be written
  /// it is once the next one can.
  Result<std::optional<std::int64_t>> publish_interim(std::int64_t evaluation_id,
                                                      protocol::Interim interim,
                                                      std::optional<std::int64_t> lag_steps);
  /// At start, and after an error: cuts a torn tail of metrics.jsonl, writes again what somebody
  /// deleted of what was published, and publishes every evaluation of the run that is scored and
  /// not published. Returns how many; the first error ends it.
  Result<std::int64_t> publish_pending(std::int64_t run_id, std::optional<std::int64_t> lag_steps);
  /// The directory was taken over from an agent that may wake up: metrics.jsonl is replaced by a
  /// copy, so that what it writes to the one that it has open reaches nobody. Before anything else.
  Status replace_log();
  /// Writes best.json from the database; call it after Store::set_kept_path. No file while nothing
  /// has a value.
  Status write_best(std::int64_t run_id);
  /// As publish::own_direction() (best.h).
  Result<std::optional<bool>> own_direction(std::int64_t run_id) const;
  /// The best evaluation of a kind by metric_for_best_model; absent while there is none.
  Result<std::optional<std::int64_t>> best_evaluation(std::int64_t run_id,
                                                      const std::string& kind) const;

 private:
  Result<Published> publish_one(std::int64_t evaluation_id, std::optional<std::int64_t> lag_steps);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace evalcar::publish
