// Which database a reading command means: --db, else the one of --config or --output-dir, else the
// only one in the state directory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "store/base/file_system.h"
#include "store/base/result.h"
#include "store/state/location.h"

namespace evalcar::cli {

struct DatabaseChoice {
  std::string db;                           ///< --db FILE
  std::string output_dir;                   ///< --output-dir DIR
  std::string config_store;                 ///< [store] path of --config FILE, if set there
  std::vector<std::string> config_outputs;  ///< [watch] output_dir of --config FILE
  std::string config_tasks_dir;             ///< [evaluate] tasks_dir of --config FILE
};

/// The path of the database, which exists. kInvalidArgument (exit 2): none is named and there are
/// several, or the configuration has several output directories (the message lists them); kNotFound
/// (exit 3): there is none.
Result<std::string> choose_database(
    const FileSystem& files, const DatabaseChoice& choice,
    const state::Environment& environment = state::process_environment);

}  // namespace evalcar::cli
