// What can be said in terms of a FileSystem alone: paths, small files, atomic publication, trees.
#include <unistd.h>

#include <atomic>

#include "store/base/crash_point.h"
#include "store/base/file_system.h"

namespace evalcar {

Status FileSystem::clone_file(const std::string& from, const std::string& to) {
  return make_error(ErrorCode::kUnsupported,
                    "clone to " + to + ": " + from + ": not on this file system");
}

Status FileSystem::perform(const std::string& /*path*/, std::function<Status()> call) const {
  return call();
}

void FileSystem::perform_later(const std::string& /*path*/, std::function<void()> call) const {
  call();
}

Status FileSystem::answers(const std::string& /*path*/) const { return {}; }

std::string join_path(std::string_view folder, std::string_view name) {
  if (folder.empty()) return std::string(name);
  std::string path(folder);
  if (path.back() != '/') path.push_back('/');
  return path.append(name);
}

std::string base_name(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const std::size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos || path.size() == 1 ? path
                                                                         : path.substr(slash + 1));
}

std::string parent_path(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(slash == 0 ? "/" : path.substr(0, slash));
}

Result<std::string> read_file(const FileSystem& files, const std::string& path,
                              std::uint64_t limit_bytes) {
  EVALCAR_ASSIGN_OR_RETURN(const auto file, files.open_readable(path));
  return read_file(*file, path, limit_bytes);
}

Result<std::string> read_file(const ReadableFile& file, const std::string& path,
                              std::uint64_t limit_bytes) {
  EVALCAR_ASSIGN_OR_RETURN(const FileInfo info, file.info());
  if (info.size_bytes > limit_bytes) {
    return make_error(ErrorCode::kCorruption, path + ": " + std::to_string(info.size_bytes) +
                                                  " bytes, expected at most " +
                                                  std::to_string(limit_bytes));
  }
  std::string content(info.size_bytes, '\0');
  EVALCAR_ASSIGN_OR_RETURN(
      const std::size_t n,
      file.read_at(0, std::as_writable_bytes(std::span<char>(content.data(), content.size()))));
  content.resize(n);
  return content;
}

Status make_directories(FileSystem& files, const std::string& path) {
  if (const auto info = files.info_followed(path); info.has_value()) {
    if (info->type == FileType::kDirectory) return {};
    return make_error(ErrorCode::kInvalidArgument,
                      "mkdir: " + path + ": exists and is not a folder");
  } else if (info.error().code == ErrorCode::kUnavailable) {
    return info.error();  // a mount that does not answer may hold the parents, too
  }
  if (files.is_left_to_owner(path)) {
    return make_error(
        ErrorCode::kNotFound,
        "mkdir: " + path + ": is not there, and is not made by others than its owner");
  }
  const std::string parent = parent_path(path);
  if (parent != path && parent != ".") EVALCAR_RETURN_IF_ERROR(make_directories(files, parent));
  if (Status made = files.make_directory(path); !made.has_value()) {
    const auto info = files.info_followed(path);  // somebody else may have made it meanwhile
    if (!info.has_value() || info->type != FileType::kDirectory) return made;
  }
  return files.sync_directory(parent);  // else a power cut takes the folder with all its files
}

Status write_file_atomically(FileSystem& files, const std::string& path, std::string_view content,
                             std::uint32_t mode) {
  static std::atomic<std::uint64_t> counter{0};
  const std::string folder = parent_path(path);
  const std::string temporary =
      join_path(folder, "." + base_name(path) + ".tmp." + std::to_string(::getpid()) + "." +
                            std::to_string(counter.fetch_add(1)));
  const Status written = [&]() -> Status {
    EVALCAR_ASSIGN_OR_RETURN(const auto file, files.create(temporary, mode));
    EVALCAR_RETURN_IF_ERROR(file->append(content));
    EVALCAR_RETURN_IF_ERROR(file->sync());
    EVALCAR_RETURN_IF_ERROR(file->close());
    crash_point("after_tmp_write");
    return files.rename(temporary, path);
  }();
  if (!written.has_value()) {
    (void)files.remove_file(temporary);  // best effort: the first error is the one to report
    return written;
  }
  crash_point("after_rename");
  return files.sync_directory(folder);
}

Status remove_tree(FileSystem& files, const std::string& path) {
  const auto info = files.info(path);
  if (!info.has_value()) {
    if (info.error().code == ErrorCode::kNotFound) return {};
    return info.error();
  }
  if (info->type != FileType::kDirectory) return files.remove_file(path);
  EVALCAR_ASSIGN_OR_RETURN(const auto entries, files.list(path));
  for (const DirectoryEntry& entry : entries) {
    EVALCAR_RETURN_IF_ERROR(remove_tree(files, join_path(path, entry.name)));
  }
  return files.remove_directory(path);
}

}  // namespace evalcar
