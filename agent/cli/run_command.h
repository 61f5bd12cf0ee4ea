// `evalcar run`: the sidecar.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "agent/config/config.h"
#include "store/base/file_system.h"

namespace evalcar::cli {

struct RunOptions {
  std::string config_file;
  std::vector<config::Override> overrides;
  bool once = false;
  bool print_config = false;
  bool serve = false;     ///< `evalcar serve`: the HTTP API alone, nothing is watched for by itself
  std::string host;       ///< of `serve`: --host; "": as configured, else 127.0.0.1
  std::int64_t port = 0;  ///< of `serve`: --port; 0: as configured, else 8000
  std::vector<std::string> roots;  ///< of `serve`: --root
};

/// SIGTERM and SIGINT end it cleanly, SIGHUP reads the configuration again. Returns the exit code.
int run_run(const RunOptions& options, FileSystem& disk, std::ostream& out, std::ostream& err);

/// What the settings are for.
enum class Use {
  kWatch,  ///< run: an output directory must be named; a data folder that is not there is waited
           ///< for
  kOnce,   ///< run --once: the data folder must be there too
  kServe,  ///< serve: jobs bring directories and tasks
  kOneCheckpoint,  ///< eval: no output directory is named
};

/// Relative paths of a configuration are relative to the working directory; links stay.
void make_paths_absolute(config::Settings& settings);

/// evaluate.base_model may be an id of the hub: it becomes the folder of that model on this
/// machine. kInvalidArgument, with the command that fetches it, where there is none. Reads the
/// environment, for the place of the hub cache. Before make_paths_absolute(), which takes an id for
/// a path.
Status place_base_model(const FileSystem& files, config::Settings& settings);

/// Turns the paths of a configuration into absolute ones and checks what the table of keys cannot:
/// that something is to be watched, that every task is known, and that the data folder is there.
Status complete_settings(const FileSystem& files, config::Settings& settings, Use use);

}  // namespace evalcar::cli
