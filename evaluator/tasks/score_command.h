// `evalcar score`: scores logged samples again, ours or lmms-eval's, without a model.
#pragma once

#include <iosfwd>
#include <string>

#include "store/base/file_system.h"

namespace evalcar::tasks {

struct ScoreCommandOptions {
  std::string task;
  std::string samples;    ///< a samples JSONL file
  std::string data_dir;   ///< may be empty where the lines hold the answers
  std::string tasks_dir;  ///< the user's task files; may be empty
  std::string compat = "lmms-eval";
  std::int64_t seed = 0;
  std::int64_t bootstrap_iters = 100000;
  bool json = false;  ///< one JSON document to `out` instead of a table
};

/// Returns the exit code: 0 done, 1 failed, 2 usage (an unknown task; answers that only the data
/// set holds and no data_dir).
int run_score(const ScoreCommandOptions& options, FileSystem& files, std::ostream& out,
              std::ostream& err);

}  // namespace evalcar::tasks
