#include "agent/stage/lease_files.h"

namespace evalcar::stage {
namespace {

constexpr int kMaxDepth = 8;

Status list_down_to(const FileSystem& files, const std::string& dir, int depth,
                    std::vector<std::string>& out) {
  EVALCAR_ASSIGN_OR_RETURN(const auto entries, files.list(dir));
  for (const DirectoryEntry& entry : entries) {
    const std::string path = join_path(dir, entry.name);
    if (entry.type == FileType::kRegular) out.push_back(path);
    if (entry.type == FileType::kDirectory && depth > 0) {
      EVALCAR_RETURN_IF_ERROR(list_down_to(files, path, depth - 1, out));
    }
  }
  return {};
}

Status sync_down_to(FileSystem& files, const std::string& dir, int depth) {
  EVALCAR_ASSIGN_OR_RETURN(const auto entries, files.list(dir));
  for (const DirectoryEntry& entry : entries) {
    if (entry.type != FileType::kDirectory || depth == 0) continue;
    EVALCAR_RETURN_IF_ERROR(sync_down_to(files, join_path(dir, entry.name), depth - 1));
  }
  return files.sync_directory(dir);
}

}  // namespace

Status list_files(const FileSystem& files, const std::string& dir, std::vector<std::string>& out) {
  return list_down_to(files, dir, kMaxDepth, out);
}

Status sync_folders(FileSystem& files, const std::string& dir) {
  return sync_down_to(files, dir, kMaxDepth);
}

}  // namespace evalcar::stage
