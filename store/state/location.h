// Where databases are: the state directory, and the name that belongs to an output directory.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::state {

/// Reads an environment variable; "" if unset. Tests give their own.
using Environment = std::function<std::string(const char* name)>;
std::string process_environment(const char* name);

/// $STATE_DIRECTORY (systemd sets it to /var/lib/evalcar), else $XDG_STATE_HOME/evalcar, else
/// ~/.local/state/evalcar.
std::string state_directory(const Environment& environment = process_environment);

/// Where the small pictures of samples are, of all databases.
std::string sample_pictures_directory(const Environment& environment = process_environment);

/// "<basename>-<8 hex digits of the SHA-256 of the path>" of an output directory's real path.
std::string database_stem(const std::string& real_output_dir);

/// `<state dir>/<stem>.db` of an output directory, which need not exist yet (its nearest existing
/// parent's real path counts).
Result<std::string> default_database_path(const FileSystem& files, const std::string& output_dir,
                                          const Environment& environment = process_environment);

/// All `*.db` in the state directory, sorted; none if there is no such directory. Where no variable
/// but HOME names it, also those of the services: in /var/lib/evalcar and, a folder a unit, in
/// /var/lib/evalcar/NAME, as far as they may be read.
Result<std::vector<std::string>> list_databases(
    const FileSystem& files, const Environment& environment = process_environment);

/// Of an output directory: default_database_path(), or where there is none the listed database of
/// that name (a service made it, a person asks). Need not exist.
Result<std::string> find_database(const FileSystem& files, const std::string& output_dir,
                                  const Environment& environment = process_environment);

}  // namespace evalcar::state
