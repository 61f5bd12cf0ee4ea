// The effective configuration: defaults, then the file, then --set and command-line flags.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/config/keys.h"
#include "agent/config/settings.h"
#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::config {

/// One value from the command line. `text` is a TOML value, or any other text, then taken as a
/// string.
struct Override {
  std::string key;     ///< "evaluate.tasks"
  std::string text;    ///< "docvqa_val,textvqa_val"
  std::string source;  ///< where it came from, for --print-config: "--tasks"
};

/// Splits "section.key=value". kInvalidArgument if there is no '='.
Result<Override> parse_set_option(std::string_view option);

/// Quotes `text` so that it is taken as a string whatever it looks like.
std::string quote(std::string_view text);

struct Entry {
  const Key* key = nullptr;
  std::string literal;  ///< TOML; empty = not set
  std::string source;   ///< "default", "evalcar.toml:12", "--tasks"
};

/// A file that values were taken from, and who it was when it was read.
struct TakenFile {
  std::string path;
  FileInfo identity;
};

struct Config {
  Settings settings;
  std::vector<Entry> entries;  ///< in the order of keys()
  std::vector<std::string> warnings;
  /// What is the unit's: of no effect where no unit runs this.
  std::vector<std::string> unit_notes;
  std::optional<TakenFile>
      run_config;  ///< the run's own (run_config.h), if tasks were taken from it
};

/// Reads `file` (empty: none) and applies `overrides` in order over it. kInvalidArgument lists
/// every problem, one a line: file, line, key, what was seen, what was expected; an unknown key
/// names the nearest known one.
Result<Config> load(const FileSystem& files, const std::string& file,
                    const std::vector<Override>& overrides);

/// What --print-config shows: valid TOML that parses back to the same values; a comment tells where
/// each came from.
std::string print_effective(const Config& config);
/// What `evalcar init` writes: every key with its meaning and default, commented out, but the few
/// that a user must set, which are taken from `config` where they are set there.
std::string commented_file(const Config& config);

}  // namespace evalcar::config
