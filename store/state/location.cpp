#include "store/state/location.h"

#include <unistd.h>

#include <cstdlib>

#include "store/base/hash.h"

namespace evalcar::state {

namespace {
constexpr std::size_t kLongestName = 234;
constexpr std::size_t kCutName = 200;
}  // namespace

std::string process_environment(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody sets it
  return value == nullptr ? std::string() : std::string(value);
}

std::string state_directory(const Environment& environment) {
  // systemd gives a list separated by colons; the first is ours.
  if (const std::string given = environment("STATE_DIRECTORY"); !given.empty()) {
    return given.substr(0, given.find(':'));
  }
  if (const std::string given = environment("XDG_STATE_HOME"); given.starts_with('/')) {
    return join_path(given, "evalcar");
  }
  if (const std::string home = environment("HOME"); !home.empty()) {
    return join_path(home, ".local/state/evalcar");
  }
  return "/var/lib/evalcar";
}

std::string sample_pictures_directory(const Environment& environment) {
  return join_path(state_directory(environment), "sample-pictures");
}

std::string database_stem(const std::string& real_output_dir) {
  // A file's name has at most 255 bytes, with what is put behind it here and by others; the hash
  // is of all of it. Characters of UTF-8 stay whole.
  std::string name = base_name(real_output_dir);
  if (name.size() > kLongestName) {
    std::size_t end = kCutName;
    while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0U) == 0x80U) --end;
    name.resize(end);
  }
  return name + "-" + sha256_hex(real_output_dir).substr(0, 8);
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

namespace {

constexpr const char* kServices = "/var/lib/evalcar";

/// Adds the `*.db` of a folder, and names the folders in it. None where there is no such folder.
Status add_databases(const FileSystem& files, const std::string& folder,
                     std::vector<std::string>& found, std::vector<std::string>* folders) {
  const auto entries = files.list(folder);
  if (!entries.has_value()) {
    if (entries.error().code == ErrorCode::kNotFound) return {};
    return entries.error();
  }
  for (const DirectoryEntry& entry : *entries) {
    const std::string path = join_path(folder, entry.name);
    if (entry.type == FileType::kDirectory) {
      if (folders != nullptr) folders->push_back(path);
    } else if (entry.name.ends_with(".db")) {
      found.push_back(path);
    }
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> list_databases(const FileSystem& files,
                                                const Environment& environment) {
  std::vector<std::string> found;
  const std::string own = state_directory(environment);
  EVALCAR_RETURN_IF_ERROR(add_databases(files, own, found, nullptr));
  if (!environment("STATE_DIRECTORY").empty() || !environment("XDG_STATE_HOME").empty()) {
    return found;
  }
  // Those of other people's services may not be read: they are not asked for.
  std::vector<std::string> folders;
  std::vector<std::string> of_services;
  (void)add_databases(files, kServices, of_services, &folders);
  for (const std::string& folder : folders) {
    (void)add_databases(files, folder, of_services, nullptr);
  }
  if (own == kServices) found.clear();
  found.insert(found.end(), of_services.begin(), of_services.end());
  return found;
}

Result<std::string> find_database(const FileSystem& files, const std::string& output_dir,
                                  const Environment& environment) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string own,
                           default_database_path(files, output_dir, environment));
  if (files.info_followed(own).has_value()) return own;
  EVALCAR_ASSIGN_OR_RETURN(const auto all, list_databases(files, environment));
  for (const std::string& path : all) {
    if (base_name(path) == base_name(own)) return path;
  }
  return own;
}

}  // namespace evalcar::state
