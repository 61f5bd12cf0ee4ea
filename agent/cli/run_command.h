// `evalcar run`: the sidecar.
#pragma once

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
};

/// SIGTERM and SIGINT end it cleanly, SIGHUP reads the configuration again. Returns the exit code.
int run_run(const RunOptions& options, FileSystem& files, std::ostream& out, std::ostream& err);

/// Turns the paths of a configuration into absolute ones and checks what the table of keys cannot:
/// that something is to be watched (`needs_output_dir`), and that every task is known.
Status complete_settings(const FileSystem& files, config::Settings& settings,
                         bool needs_output_dir);

}  // namespace evalcar::cli
