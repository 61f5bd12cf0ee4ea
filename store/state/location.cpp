#include "store/state/location.h"

#include <unistd.h>

#include <cstdlib>

#include "store/base/hash.h"

namespace evalcar::state {

std::string process_environment(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets it
  return value == nullptr ? std::string() : std::string(value);
}

std::string state_directory(const Environment& environment) {
  // systemd gives a list separated by colons; the first is ours.
  if (const std::string given = environment("STATE_DIRECTORY"); !given.empty()) {
    return given.substr(0, given.find(':'));
  }
  if (const std::string given = environment("XDG_STATE_HOME"); given.starts_with("/")) {
    return join_path(given, "evalcar");
  }
  if (const std::string home = environment("HOME"); !home.empty()) {
    return join_path(home, ".local/state/evalcar");
  }
  return "/var/lib/evalcar";
}

std::string database_stem(const std::string& real_output_dir) {
  return base_name(real_output_dir) + "-" + sha256_hex(real_output_dir).substr(0, 8);
}

namespace {

/// real_path() of what exists of it, the rest as written.
Result<std::string> real_path_of_future(const FileSystem& files, const std::string& path) {
  auto there = files.real_path(path);
  if (there.has_value() || there.error().code == ErrorCode::kUnavailable) return there;
  const std::string parent = parent_path(path);
  if (parent == path) return path;
  EVALCAR_ASSIGN_OR_RETURN(const std::string real, real_path_of_future(files, parent));
  return join_path(real, base_name(path));
}

}  // namespace

Result<std::string> default_database_path(const FileSystem& files, const std::string& output_dir,
                                          const Environment& environment) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string real, real_path_of_future(files, output_dir));
  return join_path(state_directory(environment), database_stem(real) + ".db");
}

Result<std::vector<std::string>> list_databases(const FileSystem& files,
                                                const Environment& environment) {
  const std::string folder = state_directory(environment);
  const auto entries = files.list(folder);
  if (!entries.has_value()) {
    if (entries.error().code == ErrorCode::kNotFound) return std::vector<std::string>{};
    return entries.error();
  }
  std::vector<std::string> found;
  for (const DirectoryEntry& entry : *entries) {
    if (entry.name.ends_with(".db") && entry.type != FileType::kDirectory) {
      found.push_back(join_path(folder, entry.name));
    }
  }
  return found;
}

}  // namespace evalcar::state
