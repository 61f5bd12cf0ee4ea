#include "store/checkpoint/merge_staging.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <string_view>
#include <utility>

#include "store/base/hash.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::string_view kTemporaryPrefix = ".evalcar-merge-";
constexpr std::string_view kReplaced = ".old";

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

}  // namespace

MergeStaging::MergeStaging(FileSystem& files, std::string output)
    : files_(files),
      output_(std::move(output)),
      realm_(realm_of_processes(files)),
      path_(join_path(parent_path(output_), std::string(kTemporaryPrefix) + base_name(output_) +
                                                "." + std::to_string(::getpid()) + "-" + realm_)) {}

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
  EVALCAR_RETURN_IF_ERROR(remove_tree(files_, path_));
  return files_.make_directory(path_, 0755);
}

Status MergeStaging::publish(bool replace) {
  EVALCAR_RETURN_IF_ERROR(files_.sync_directory(path_));
  const std::string old = path_ + std::string(kReplaced);
  const bool exists = files_.info(output_).has_value();
  if (exists && replace) {
    EVALCAR_RETURN_IF_ERROR(remove_tree(files_, old));
    EVALCAR_RETURN_IF_ERROR(files_.rename(output_, old));
  } else if (exists) {
    EVALCAR_RETURN_IF_ERROR(files_.remove_directory(output_));  // empty, or this fails
  }
  EVALCAR_RETURN_IF_ERROR(files_.rename(path_, output_));
  published_ = true;
  if (exists && replace) EVALCAR_RETURN_IF_ERROR(remove_tree(files_, old));
  return files_.sync_directory(parent_path(output_));
}

/// Temporary folders of merges to the same target whose process is gone.
void MergeStaging::remove_leftovers() {
  const std::string parent = parent_path(output_);
  const std::string prefix = std::string(kTemporaryPrefix) + base_name(output_) + ".";
  const auto entries = files_.list(parent);
  if (!entries.has_value()) return;
  for (const DirectoryEntry& entry : *entries) {
    if (!entry.name.starts_with(prefix)) continue;
    const std::string_view digits = std::string_view(entry.name).substr(prefix.size());
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), pid);
    const std::string_view rest = digits.substr(static_cast<std::size_t>(end - digits.data()));
    const bool replaced = rest == "-" + realm_ + std::string(kReplaced);
    if (error != std::errc() || pid <= 0 || (rest != "-" + realm_ && !replaced)) continue;
    if (pid == ::getpid() || ::kill(pid, 0) == 0 || errno != ESRCH) continue;
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
