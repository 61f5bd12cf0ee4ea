// `evalcar results`: the numbers in the database as a table, JSON, CSV, a comparison of two steps,
// or an SVG picture.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "agent/cli/database_choice.h"
#include "store/base/clock.h"
#include "store/base/file_system.h"

namespace evalcar::cli {

struct ResultsOptions {
  DatabaseChoice database;
  std::string run;  ///< name of a run, or a prefix that only one run has; "" = the newest
  std::string task;
  std::string metric;
  std::string weights;           ///< "regular" | "ema" | "average" | "" = all
  std::string format = "table";  ///< "table" | "json" | "csv"
  bool best = false;             ///< only the best step of each task, metric and kind
  std::optional<std::pair<std::int64_t, std::int64_t>> compare;
  std::string plot;  ///< path of the SVG file to write; "" = none
  std::string html;  ///< path of the page to write (page/page_file.h); "" = none
  /// The published name of an alias ("accuracy" → "exact_match"); null = no aliases known.
  std::function<std::string(const std::string& task, const std::string& metric)> resolve_alias;
};

/// Prints to `out`, complaints to `err`; returns the exit code: 0 done, 1 failed, 2 usage, 3 no
/// results (yet).
int run_results(const ResultsOptions& options, FileSystem& files, const Clock& clock,
                std::ostream& out, std::ostream& err);

}  // namespace evalcar::cli
