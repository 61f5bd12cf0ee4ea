#include "agent/watch/tree.h"

#include "store/base/hash.h"

namespace evalcar::watch {
namespace {

constexpr std::size_t kMaxFolders = 32;

std::string identity_text(const FileInfo& info) {
  return std::to_string(info.size_bytes) + ":" + std::to_string(info.mtime_ns);
}

std::string signature_of(const FileSystem& files, const std::string& root, const std::string& below,
                         int depth, Tree& tree) {
  const std::string path = below.empty() ? root : join_path(root, below);
  const auto entries = files.list(path, kMaxFolderEntries);
  if (!entries.has_value()) return entries.error().message;
  std::string text;
  for (const DirectoryEntry& entry : *entries) {
    const std::string relative = below.empty() ? entry.name : join_path(below, entry.name);
    const std::string child = join_path(root, relative);
    tree.names.insert(relative);
    const auto info = files.info(child);
    if (!info.has_value()) continue;
    if (info->type == FileType::kSymlink && entry.name == "eval") continue;  // our own
    text.append(entry.name).append("=").append(identity_text(*info)).append("\n");
    if (info->type == FileType::kRegular) {
      tree.bytes += info->size_bytes;
      tree.files.emplace(relative, *info);
    }
    if (info->type == FileType::kDirectory && depth > 1) {
      if (tree.folders.size() < kMaxFolders) tree.folders.insert(child);
      text += signature_of(files, root, relative, depth - 1, tree);
    }
  }
  return sha256_hex(text);
}

}  // namespace

Tree look_at_tree(const FileSystem& files, const std::string& path, int depth) {
  Tree tree;
  tree.signature = signature_of(files, path, "", depth, tree);
  return tree;
}

}  // namespace evalcar::watch
