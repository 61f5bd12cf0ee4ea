// `evalcar status`: what the sidecar does now, from the database and its heartbeat.
#pragma once

#include <ostream>
#include <string>

#include "agent/cli/database_choice.h"
#include "store/base/clock.h"
#include "store/base/file_system.h"

namespace evalcar::cli {

struct StatusOptions {
  DatabaseChoice database;
  bool json = false;
  bool bars = false;        ///< for a terminal
  bool prometheus = false;  ///< instead: publish/prometheus.h, for node_exporter's text files
};

/// Prints to `out`, complaints to `err`; returns the exit code: 0 done, 1 failed, 2 usage, 3 there
/// is no database.
int run_status(const StatusOptions& options, FileSystem& files, const Clock& clock,
               std::ostream& out, std::ostream& err);

}  // namespace evalcar::cli
