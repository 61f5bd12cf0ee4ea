// Results files in lmms-eval's own format (0.7.3), so that its tools and lmms-engine's client read
// ours: `<dir>/<model>/<date>_results.json` and `<date>_samples_<task>.jsonl`. No database needed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/clock.h"
#include "store/base/file_system.h"
#include "store/base/result.h"
#include "store/protocol/messages.h"

namespace evalcar::publish {

/// What a results file says about the run besides its numbers.
struct RunFacts {
  std::string checkpoint;  ///< path of the checkpoint folder as the user knows it: the model name
  std::string weights = "regular";
  std::string architecture;  ///< "qwen2_5_vl"; may be empty
  std::string dtype;
  std::string device;
  std::string version;         ///< of evalcar
  std::string evaluation_key;  ///< evaluation_key() where there is a database; may be empty
  std::string record;          ///< record_of() where there is a database; may be empty
  protocol::EvaluationSettings settings;
  WallTime started{};
  WallTime finished{};
  /// An earlier attempt may have given some of the answers: the seconds are not those of all.
  bool resumed = false;
};

/// Gives every scored line (lmms-eval's sample JSON, no newline) of one task in document order;
/// stops at the first error of `line`.
using SampleSource = std::function<Status(
    const std::string& task, const std::function<Status(std::string_view line)>& line)>;

struct ResultsFiles {
  std::string results;               ///< path of the JSON file
  std::vector<std::string> samples;  ///< paths, one a task that has samples
  std::string table;                 ///< path of the text table beside it
};

/// "run__checkpoint-500": the last two components of the path, as lmms-eval names the folder.
std::string sanitized_model_name(std::string_view checkpoint);
/// "20261121_170005": of `finished` in UTC. lmms-eval uses Asia/Singapore by default; its readers
/// only sort these names.
std::string date_name(WallTime time);

/// The text of `<date>_results.json`: all keys of lmms-eval's file in its order, indent 2. Failed
/// tasks are left out of `results`; our own facts are under the last key, `evalcar`.
Result<std::string> results_json(const RunFacts& facts, const protocol::EvaluationResult& result,
                                 const SampleSource& samples);

/// Writes samples, table and, last, the results file, each atomically, into `dir`/<model>/ (made if
/// needed). The samples files are left out if `samples` is empty (a null function).
Result<ResultsFiles> write_results_files(FileSystem& files, const std::string& dir,
                                         const RunFacts& facts,
                                         const protocol::EvaluationResult& result,
                                         const SampleSource& samples);

}  // namespace evalcar::publish
