#include "store/checkpoint/merge_staging.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "store/base/hash.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::string_view kTemporaryPrefix = ".evalcar-merge-";
constexpr std::string_view kReplaced = ".old";
/// In a temporary folder inside the target: names of the files that move, one a line.
constexpr std::string_view kMoved = ".moved";
constexpr std::uint64_t kMaxList = std::uint64_t{16} << 20U;

/// mkdir -p that outlives a power cut: the parent of each new folder is synced. `made`: the new
/// ones, the outermost first.
Status make_durable_directories(FileSystem& files, const std::string& path,
                                std::vector<std::string>& made) {
  if (files.info_followed(path).has_value()) return make_directories(files, path);
  const std::string parent = parent_path(path);
  if (parent != path) EVALCAR_RETURN_IF_ERROR(make_durable_directories(files, parent, made));
  EVALCAR_RETURN_IF_ERROR(make_directories(files, path));
  made.push_back(path);
  return files.sync_directory(parent);
}

/// Where a process number means what it means here: on other machines that share the disk, and in
/// other containers, it is another process, or none.
std::string realm_of_processes(const FileSystem& files) {
  std::array<char, 256> host{};
  (void)::gethostname(host.data(), host.size() - 1);
  const auto numbering = files.read_link("/proc/self/ns/pid");
  return sha256_hex(std::string(host.data()) + numbering.value_or("")).substr(0, 8);
}

/// "<pid>-<realm>" of a temporary folder; absent: of none of ours.
struct Maker {
  pid_t pid = 0;
  std::string_view rest;
};
std::optional<Maker> maker_of(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  Maker maker;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), maker.pid);
  if (error != std::errc() || maker.pid <= 0) return std::nullopt;
  maker.rest = name.substr(static_cast<std::size_t>(end - name.data()));
  return maker;
}

bool is_dead(pid_t pid) { return pid != ::getpid() && ::kill(pid, 0) != 0 && errno == ESRCH; }

/// What temporary folders of merges to this target begin with. A name that leaves no room for the
/// rest is told by its hash.
std::string temporary_prefix(const std::string& output) {
  constexpr std::size_t kLongestName = 120;
  std::string name = base_name(output);
  if (name.size() > kLongestName) {
    name = name.substr(0, kLongestName / 2) + "-" + sha256_hex(name).substr(0, 16);
  }
  return std::string(kTemporaryPrefix) + name + ".";
}

/// This process stands there: after a rename whoever called it would stand in a deleted folder.
bool is_working_directory(const FileSystem& files, const std::string& path) {
  const auto here = files.real_path(".");
  return here.has_value() && *here == path;
}

/// A file of /proc tells no size.
std::string mount_list(const FileSystem& files) {
  const auto file = files.open_readable("/proc/self/mountinfo");
  std::string list;
  std::string piece(std::size_t{64} << 10U, '\0');
  while (file.has_value() && list.size() < kMaxList) {
    const auto n = (*file)->read_at(list.size(), std::as_writable_bytes(std::span<char>(piece)));
    if (!n.has_value() || *n == 0) break;
    list.append(piece, 0, *n);
  }
  return list;
}

/// Whether something is mounted there: nothing can be renamed over it. A bind mount has the device
/// of what is around it, so the list of mounts is asked too; its paths have octal escapes.
bool is_mount_point(const FileSystem& files, const std::string& path) {
  const auto info = files.info_followed(path);
  const auto parent = files.info_followed(parent_path(path));
  if (info.has_value() && parent.has_value() && info->device != parent->device) return true;
  const std::string mounts = mount_list(files);
  std::string escaped;
  for (const char c : path) {
    const bool escapes = c == ' ' || c == '\t' || c == '\n' || c == '\\';
    const auto code = static_cast<unsigned char>(c);
    if (escapes) {
      escaped +=
          {'\\', static_cast<char>('0' + (code >> 6U)),
           static_cast<char>('0' + ((code >> 3U) & 7U)), static_cast<char>('0' + (code & 7U))};
    } else {
      escaped += c;
    }
  }
  return mounts.find(" " + escaped + " ") != std::string::npos;
}

/// Files of a merge that was killed while they moved, by its list.
std::vector<std::string> moved_by(const FileSystem& files, const std::string& staging) {
  std::vector<std::string> names;
  const auto list = read_file(files, join_path(staging, kMoved), kMaxList);
  if (!list.has_value()) return names;
  for (std::size_t begin = 0; begin < list->size();) {
    const std::size_t end = std::min(list->find('\n', begin), list->size());
    names.push_back(list->substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

/// Temporary folders in the target of merges whose process is gone, or which is this one.
std::vector<std::string> stagings_inside(const FileSystem& files, const std::string& output,
                                         const std::string& realm) {
  std::vector<std::string> found;
  const auto entries = files.list(output);
  if (!entries.has_value()) return found;
  const std::string prefix = temporary_prefix(output);
  for (const DirectoryEntry& entry : *entries) {
    const auto maker = maker_of(entry.name, prefix);
    if (!maker || maker->rest != "-" + realm) continue;
    if (maker->pid != ::getpid() && !is_dead(maker->pid)) continue;
    found.push_back(join_path(output, entry.name));
  }
  return found;
}

}  // namespace

bool MergeStaging::is_free(const FileSystem& files, const std::string& output) {
  const auto entries = files.list(output);
  if (!entries.has_value()) return false;
  std::set<std::string> ours;
  for (const std::string& staging : stagings_inside(files, output, realm_of_processes(files))) {
    ours.insert(base_name(staging));
    for (std::string& name : moved_by(files, staging)) ours.insert(std::move(name));
  }
  return std::ranges::all_of(
      *entries, [&](const DirectoryEntry& entry) { return ours.contains(entry.name); });
}

MergeStaging::MergeStaging(FileSystem& files, std::string output)
    : files_(files),
      output_(std::move(output)),
      realm_(realm_of_processes(files)),
      path_(join_path(parent_path(output_),
                      temporary_prefix(output_) + std::to_string(::getpid()) + "-" + realm_)) {}

MergeStaging::~MergeStaging() {
  if (published_) return;
  (void)remove_tree(files_, path_);  // nothing more can be done about it
  for (auto dir = made_.rbegin(); dir != made_.rend(); ++dir) {
    if (!files_.remove_directory(*dir).has_value()) break;  // somebody else's are in it
  }
}

Status MergeStaging::make() {
  EVALCAR_RETURN_IF_ERROR(make_durable_directories(files_, parent_path(output_), made_));
  remove_leftovers();
  remove_leftovers_inside();
  const auto there = files_.list(output_, 1);
  const bool may_lie_inside = there.has_value() && there->empty();
  inside_ =
      may_lie_inside && (is_mount_point(files_, output_) || is_working_directory(files_, output_));
  if (!inside_) {
    EVALCAR_RETURN_IF_ERROR(remove_tree(files_, path_));
    const Status beside = files_.make_directory(path_, 0755);
    if (beside.has_value() || !may_lie_inside) return beside;
    inside_ = true;
  }
  path_ = join_path(output_, base_name(path_));
  return files_.make_directory(path_, 0755);
}

/// What makes the folder whole comes last: a loader asks for config.json first, and then for the
/// index or the one file of weights.
Status MergeStaging::publish_inside() {
  EVALCAR_ASSIGN_OR_RETURN(const auto entries, files_.list(path_));
  std::vector<std::string> names;
  for (const DirectoryEntry& entry : entries) names.push_back(entry.name);
  const auto rank = [](const std::string& name) {
    if (name == "config.json") return 2;
    return name.ends_with(".index.json") || name == "model.safetensors" ? 1 : 0;
  };
  std::ranges::stable_sort(names, {}, rank);
  std::string list;
  for (const std::string& name : names) list += name + "\n";
  EVALCAR_RETURN_IF_ERROR(write_file_atomically(files_, join_path(path_, kMoved), list));
  EVALCAR_RETURN_IF_ERROR(files_.sync_directory(output_));
  for (const std::string& name : names) {
    // What came before must outlive a power cut that this name outlives.
    const Status before = rank(name) == 2 ? files_.sync_directory(output_) : Status();
    const Status moved = !before.has_value()
                             ? before
                             : files_.rename(join_path(path_, name), join_path(output_, name));
    if (moved.has_value()) continue;
    // In the other order: what comes last goes first.
    for (auto back = std::ranges::find(names, name); back != names.begin();) {
      (void)remove_tree(files_, join_path(output_, *--back));
    }
    return moved;
  }
  EVALCAR_RETURN_IF_ERROR(files_.sync_directory(output_));
  published_ = true;
  EVALCAR_RETURN_IF_ERROR(remove_tree(files_, path_));
  return files_.sync_directory(output_);
}

Status MergeStaging::publish(bool replace) {
  EVALCAR_RETURN_IF_ERROR(files_.sync_directory(path_));
  if (inside_) return publish_inside();
  const std::string old = path_ + std::string(kReplaced);
  const bool exists = files_.info(output_).has_value();
  if (exists && replace) {
    EVALCAR_RETURN_IF_ERROR(remove_tree(files_, old));
    EVALCAR_RETURN_IF_ERROR(files_.rename(output_, old));
  } else if (exists) {
    EVALCAR_RETURN_IF_ERROR(files_.remove_directory(output_));  // empty, or this fails
  }
  if (const Status placed = files_.rename(path_, output_); !placed.has_value()) {
    if (!exists || !replace || files_.rename(old, output_).has_value()) return placed;
    Error error = placed.error();
    error.message += "; what was there before is in " + old;
    return error;
  }
  published_ = true;
  if (exists && replace) EVALCAR_RETURN_IF_ERROR(remove_tree(files_, old));
  return files_.sync_directory(parent_path(output_));
}

/// What moved goes before its list does, config.json first of all.
void MergeStaging::remove_leftovers_inside() {
  for (const std::string& staging : stagings_inside(files_, output_, realm_)) {
    const std::vector<std::string> moved = moved_by(files_, staging);
    for (auto name = moved.rbegin(); name != moved.rend(); ++name) {
      const bool plain = name->find('/') == std::string::npos && !name->empty();
      // Those that are still in the temporary folder did not move: that name is somebody else's.
      if (!plain || files_.info(join_path(staging, *name)).has_value()) continue;
      (void)remove_tree(files_, join_path(output_, *name));
    }
    (void)remove_tree(files_, staging);
  }
}

/// Temporary folders of merges to the same target whose process is gone, or which is this one.
void MergeStaging::remove_leftovers() {
  const std::string parent = parent_path(output_);
  const std::string prefix = temporary_prefix(output_);
  const auto entries = files_.list(parent);
  if (!entries.has_value()) return;
  for (const DirectoryEntry& entry : *entries) {
    const auto maker = maker_of(entry.name, prefix);
    if (!maker || (maker->pid != ::getpid() && !is_dead(maker->pid))) continue;
    const bool replaced = maker->rest == "-" + realm_ + std::string(kReplaced);
    if (maker->rest != "-" + realm_ && !replaced) continue;
    // Ours, and nobody's any more. One that was to be replaced, and was not, is still the result.
    const std::string path = join_path(parent, entry.name);
    if (replaced && !files_.info(output_).has_value()) {
      (void)files_.rename(path, output_);
    } else {
      (void)remove_tree(files_, path);
    }
  }
}

}  // namespace evalcar::checkpoint
