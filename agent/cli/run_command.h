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

}  // namespace evalcar::cli
