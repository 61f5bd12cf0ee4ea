#include "agent/cli/systemd_drop_in.h"

#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>
#include <vector>

#include "store/checkpoint/home_place.h"

namespace evalcar::cli {
namespace {

Error bad(std::string message) {
  return make_error(ErrorCode::kInvalidArgument, std::move(message));
}

/// "/etc/evalcar/my-run.toml" → "my-run"; what unit names may hold (systemd.unit(5)).
Result<std::string> instance_of(const std::string& config_file) {
  std::string name = base_name(config_file);
  if (name.ends_with(".toml")) name.resize(name.size() - 5);
  const std::string_view allowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:-_.\\";
  if (name.empty() || name.size() > 200 || name.find_first_not_of(allowed) != std::string::npos) {
    return bad("\"" + name +
               "\" cannot be part of a unit's name: name the configuration "
               "NAME.toml, of letters, digits and \":-_.\"");
  }
  return name;
}

/// As systemd reads it back: quoted, with "%" and "\" doubled.
std::string quoted(const std::string& path, const char* prefix = "") {
  std::string text = std::string("\"") + prefix;
  for (const char c : path) {
    if (c == '"' || c == '\\') text.push_back('\\');
    if (c == '%') text.push_back('%');
    text.push_back(c);
  }
  return text + "\"";
}

Status check_path(const std::string& path) {
  const bool control =
      std::any_of(path.begin(), path.end(), [](unsigned char c) { return c < 32; });
  if (control) return bad(path + ": a unit cannot name a path with control characters");
  return {};
}

Result<std::string> nearest_existing(const FileSystem& files, const std::string& path) {
  std::string found = path;
  while (found.size() > 1 && !files.info_followed(found).has_value()) found = parent_path(found);
  if (found == "/") return bad(path + ": nothing of it exists yet; make it first");
  return found;
}

using Owner = std::pair<uid_t, gid_t>;

Result<Owner> owner_of(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return errno_error("stat", path, errno);
  return Owner(info.st_uid, info.st_gid);
}

std::string user_name(uid_t id) {
  const passwd* const entry = ::getpwuid(id);  // NOLINT(concurrency-mt-unsafe): one thread
  return entry == nullptr ? std::to_string(id) : entry->pw_name;
}

std::string group_name(gid_t id) {
  const group* const entry = ::getgrgid(id);  // NOLINT(concurrency-mt-unsafe): one thread
  return entry == nullptr ? std::to_string(id) : entry->gr_name;
}

/// ProtectSystem=strict, which the unit has, leaves what is below /dev as it is.
bool is_writable_anyway(const std::string& path) {
  return path == "/dev" || path.starts_with("/dev/");
}

/// ReadWritePaths=; "" if none is needed. The "-": a folder that is gone when the unit starts again
/// must not make that fail.
std::string writable_line(const std::set<std::string>& paths) {
  std::string line;
  for (const std::string& path : paths) {
    if (is_writable_anyway(path)) continue;
    line += (line.empty() ? "ReadWritePaths=" : " ") + quoted(path, "-");
  }
  return line.empty() ? line : line + "\n";
}

/// What limits.* asks of the unit in the place of its own; "" if nothing.
std::string limits_of(const config::LimitSettings& limits) {
  std::string lines;
  if (limits.cpu_weight.has_value() || limits.io_weight.has_value()) {
    // In a slice a weight counts among the units of that slice alone.
    lines += "# Beside system.slice and user.slice, so that its weight counts against theirs.\n";
    lines += "Slice=-.slice\n";
  }
  if (limits.cpu_weight.has_value()) {
    lines += "CPUWeight=" + std::to_string(*limits.cpu_weight) + "\n";
  }
  if (limits.io_weight.has_value()) {
    lines += "IOWeight=" + std::to_string(*limits.io_weight) + "\n";
  }
  // MemoryHigh, which the unit has below MemoryMax, slows down without ending anything.
  if (!limits.memory_max.empty()) {
    lines += "MemoryHigh=infinity\nMemoryMax=" + limits.memory_max + "\n";
  }
  return lines;
}

}  // namespace

Result<DropIn> make_drop_in(const FileSystem& files, const config::Settings& settings,
                            const std::string& config_file) {
  EVALCAR_ASSIGN_OR_RETURN(const std::string instance, instance_of(config_file));
  const auto& outputs = settings.watch.output_dir;
  if (outputs.empty())
    return bad("watch.output_dir is not set: which directory may be written to?");
  std::set<std::string> writable;
  std::set<uid_t> users;
  std::set<gid_t> groups;
  std::string mounts;
  for (const std::string& output : outputs) {
    EVALCAR_RETURN_IF_ERROR(check_path(output));
    EVALCAR_ASSIGN_OR_RETURN(const std::string there, nearest_existing(files, output));
    EVALCAR_ASSIGN_OR_RETURN(const Owner owner, owner_of(there));
    if (there != output && owner.first == 0) {
      return bad(output + ": does not exist yet, and " + there +
                 " is root's: make it first, as the user who trains, since the service runs as its "
                 "owner");
    }
    users.insert(owner.first);
    groups.insert(owner.second);
    // Not both: paths of a unit are mounts, and no hard link leads from one to another.
    const checkpoint::HomePlace home =
        checkpoint::home_place(files, output, settings.watch.pattern);
    writable.insert(home.beside() ? parent_path(home.path) : there);
    mounts += " " + quoted(there);
  }
  if (users.size() > 1) {
    return bad("the output directories belong to several users; give each its own configuration");
  }
  std::vector<std::string> others = {settings.publish.dir, settings.watch.snapshot_dir};
  for (const std::string& file : {settings.store.path, settings.server.unix_socket}) {
    if (file.empty()) continue;
    EVALCAR_RETURN_IF_ERROR(check_path(file));
    others.push_back(parent_path(file));
  }
  for (const std::string& other : others) {
    if (other.empty()) continue;
    EVALCAR_RETURN_IF_ERROR(check_path(other));
    EVALCAR_ASSIGN_OR_RETURN(const std::string there, nearest_existing(files, other));
    writable.insert(there);
  }
  const std::string content =
      "# Written by `evalcar init --systemd --config " + config_file + "`\n[Unit]\n" +
      "RequiresMountsFor=" + mounts.substr(1) + "\n\n[Service]\n" +
      "# The trainer's user: only the owner of a checkpoint's files may keep "
      "them by hard links.\n" +
      "User=" + user_name(*users.begin()) + "\nGroup=" + group_name(*groups.begin()) + "\n";
  return DropIn{instance, content + writable_line(writable) + limits_of(settings.limits)};
}

}  // namespace evalcar::cli
