// `evalcar eval`: one checkpoint, no daemon, no database.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "agent/config/config.h"
#include "store/base/file_system.h"
#include "store/checkpoint/layout.h"

namespace evalcar::cli {

struct EvalOptions {
  std::string checkpoint;
  checkpoint::WeightsKind weights = checkpoint::WeightsKind::kRegular;
  std::string output = "evalcar_results";  ///< where the results files go; in no checkpoint
  std::string config_file;
  std::vector<config::Override> overrides;
  bool json = false;
};

/// Prints lmms-eval's table (or one JSON document) to `out` and saves it with the results files.
/// The checkpoint is only read, where it lies: if its files change meanwhile, nothing is said of
/// it. Returns 0 done, 1 failed, 2 usage, 3 the checkpoint is not complete, 4 some tasks failed.
int run_eval(const EvalOptions& options, FileSystem& files, std::ostream& out, std::ostream& err);

}  // namespace evalcar::cli
