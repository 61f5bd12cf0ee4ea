#include "agent/watch/content.h"

#include <algorithm>

namespace evalcar::watch {

bool contains_file(const KnownContent& content, const state::FileIdentity& file) {
  return std::find(content.files.begin(), content.files.end(), file) != content.files.end();
}

std::int64_t written_ns(const std::vector<WatchedFile>& files) {
  std::int64_t newest = 0;
  for (const WatchedFile& file : files) newest = std::max(newest, file.identity.mtime_ns);
  return newest;
}

bool holds_weights(std::string_view name) {
  return name.ends_with(".pt") || name.ends_with(".safetensors") || name.ends_with(".bin") ||
         name.ends_with(".distcp");
}

KnownContent content_of(const std::vector<WatchedFile>& files) {
  KnownContent content;
  for (const WatchedFile& file : files) {
    const FileInfo& id = file.identity;
    content.files.push_back({file.relative, id.inode, id.size_bytes, id.mtime_ns});
  }
  content.fingerprint = state::content_fingerprint(content.files);
  return content;
}

Replaced weights_replaced(const KnownContent& before, const KnownContent& now) {
  std::map<std::string_view, const state::FileIdentity*> by_path;
  for (const state::FileIdentity& file : before.files) by_path[file.path] = &file;
  bool kept = false;
  bool replaced = false;
  for (const state::FileIdentity& file : now.files) {
    const auto old = by_path.find(file.path);
    if (!holds_weights(file.path) || old == by_path.end()) continue;
    const bool same =
        old->second->size_bytes == file.size_bytes && old->second->mtime_ns == file.mtime_ns;
    (same ? kept : replaced) = true;
  }
  if (replaced) return kept ? Replaced::kSome : Replaced::kAll;
  return kept ? Replaced::kNone : Replaced::kAll;
}

std::optional<std::string> missing_of(const KnownContent& before, const KnownContent& now) {
  for (const state::FileIdentity& file : now.files) {
    if (!contains_file(before, file)) return std::nullopt;
  }
  for (const state::FileIdentity& file : before.files) {
    if (!contains_file(now, file)) return file.path;
  }
  return std::nullopt;
}

}  // namespace evalcar::watch
