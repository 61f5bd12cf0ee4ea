// One line of metrics.jsonl: what a trainer's callback reads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/protocol/messages.h"
#include "store/state/types.h"

namespace evalcar::publish {

using Aliases =
    std::function<std::vector<std::string>(const std::string& task, const std::string& metric)>;

/// "eval", "eval_ema", "eval_avg" for "regular", "ema", "average".
std::string_view key_prefix(std::string_view kind);

/// "eval/<task>/<metric>"; with ",<filter>" behind it unless the filter is lmms-eval's "none".
std::string metric_key(std::string_view kind, const std::string& task,
                       const protocol::Metric& metric);

/// Names what was measured, also where the database was lost: 16 hex digits over run, step, kind,
/// weights, settings, tasks, their fingerprints, and those that failed. A line with the same key
/// says the same. `generation`: of the checkpoint, where an earlier one of it gave the very same:
/// its weights came back after others, and so does their number, in a line of its own.
std::string evaluation_key(const state::Evaluation& evaluation,
                           const protocol::EvaluationResult& result, std::int64_t generation = 1);

/// Why the number of a task is to be looked at before it is believed (all answers the same, most of
/// them cut off): the list "flags" of its notes. Empty: nothing is known against it.
std::vector<std::string> flags_of(const protocol::TaskResult& task);

/// All keys and values of an evaluation, standard errors as "<key>_stderr", with aliases.
std::map<std::string, double> metric_values(std::string_view kind,
                                            const protocol::EvaluationResult& result,
                                            const Aliases& aliases);

/// The same of an interim score (of any generation above 1), and unlike the key of any result:
/// which part of what was measured, and what it gave. A device that failed may have told a wrong
/// one: the right one is another line.
std::string interim_key(const state::Evaluation& evaluation, const protocol::Interim& interim);

/// What a line holds besides the result.
struct LineFacts {
  std::int64_t seq = 0;
  std::optional<std::int64_t> supersedes;
  std::optional<std::int64_t> supersedes_interim = {};  ///< of a result's line only
  std::optional<std::int64_t> lag_steps;
  std::string results_file;         ///< relative to the folder of metrics.jsonl
  std::string evaluation_key = {};  ///< of a result's line
  std::string time;
};

/// The line, without the newline.
std::string metrics_line(const state::Evaluation& evaluation,
                         const protocol::EvaluationResult& result, const LineFacts& facts,
                         const Aliases& aliases);

/// The line of an interim score: "final" is false, "intervals" holds the 95 % interval of each
/// value with a standard error above 0, within 0 and 1 for metrics that are: that of the mean over
/// endlessly many such documents, so wider than what the whole task may still give. "samples" of
/// "documents" are answered. `facts.results_file` is not used.
std::string interim_line(const state::Evaluation& evaluation, const protocol::Interim& interim,
                         const LineFacts& facts, const Aliases& aliases);

}  // namespace evalcar::publish
