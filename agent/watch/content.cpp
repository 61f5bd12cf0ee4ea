#include "agent/watch/content.h"

#include <algorithm>

namespace evalcar::watch {
namespace {

bool contains_file(const KnownContent& content, const state::FileIdentity& file) {
  return std::find(content.files.begin(), content.files.end(), file) != content.files.end();
}

}  // namespace

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

bool all_weights_replaced(const KnownContent& before, const KnownContent& now) {
  if (before.files.empty()) return false;
  return std::none_of(now.files.begin(), now.files.end(), [&before](const auto& file) {
    return holds_weights(file.path) && contains_file(before, file);
  });
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
