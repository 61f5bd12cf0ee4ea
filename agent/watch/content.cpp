#include "agent/watch/content.h"

#include <algorithm>

namespace evalcar::watch {

bool contains_file(const KnownContent& content, const state::FileIdentity& file) {
  return std::find(content.files.begin(), content.files.end(), file) != content.files.end();
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
  bool kept = false;
  bool replaced = false;
  for (const state::FileIdentity& file : now.files) {
    if (holds_weights(file.path)) (contains_file(before, file) ? kept : replaced) = true;
  }
  if (!kept) return Replaced::kAll;
  return replaced ? Replaced::kSome : Replaced::kNone;
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
