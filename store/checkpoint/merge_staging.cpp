#include "store/checkpoint/merge_staging.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <string_view>
#include <utility>

namespace evalcar::checkpoint {
namespace {

constexpr std::string_view kTemporaryPrefix = ".evalcar-merge-";

/// mkdir -p that outlives a power cut: the parent of each new folder is synced.
Status make_durable_directories(FileSystem& files, const std::string& path) {
  if (files.info_followed(path).has_value()) return make_directories(files, path);
  const std::string parent = parent_path(path);
  if (parent != path) EVALCAR_RETURN_IF_ERROR(make_durable_directories(files, parent));
  EVALCAR_RETURN_IF_ERROR(make_directories(files, path));
  return files.sync_directory(parent);
}

}  // namespace

MergeStaging::MergeStaging(FileSystem& files, std::string output)
    : files_(files),
      output_(std::move(output)),
      path_(join_path(parent_path(output_), std::string(kTemporaryPrefix) + base_name(output_) +
                                                "." + std::to_string(::getpid()))) {}

MergeStaging::~MergeStaging() {
  if (!published_) (void)remove_tree(files_, path_);  // nothing more can be done about it
}

Status MergeStaging::make() {
  EVALCAR_RETURN_IF_ERROR(make_durable_directories(files_, parent_path(output_)));
  remove_leftovers();
  EVALCAR_RETURN_IF_ERROR(remove_tree(files_, path_));
  return files_.make_directory(path_, 0755);
}

Status MergeStaging::publish(bool replace) {
  EVALCAR_RETURN_IF_ERROR(files_.sync_directory(path_));
  const std::string old = path_ + ".old";
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
    if (error != std::errc() || pid <= 0 || (!rest.empty() && rest != ".old")) continue;
    if (pid != ::getpid() && ::kill(pid, 0) != 0 && errno == ESRCH) {
      (void)remove_tree(files_, join_path(parent, entry.name));  // ours, and nobody's any more
    }
  }
}

}  // namespace evalcar::checkpoint
