#include "agent/publish/unused_pictures.h"

#include <chrono>
#include <set>

#include "store/protocol/picture_name.h"
#include "store/state/picture_names.h"

namespace evalcar::publish {
namespace {

constexpr std::chrono::hours kUnused{24};
constexpr std::size_t kMostEntries = 1U << 20U;

}  // namespace

Result<RemovedPictures> remove_unused_pictures(FileSystem& files, const Clock& clock,
                                               const std::string& folder,
                                               const std::vector<std::string>& databases,
                                               std::size_t most) {
  RemovedPictures removed;
  const auto parts = files.list(folder, kMostEntries);
  if (!parts.has_value()) return removed;
  std::set<std::string> used;
  for (const std::string& database : databases) {
    EVALCAR_RETURN_IF_ERROR(state::add_picture_names(database, used));
  }
  const std::int64_t now = std::chrono::nanoseconds(clock.wall_now().time_since_epoch()).count();
  const std::int64_t limit = now - std::chrono::nanoseconds(kUnused).count();
  for (const DirectoryEntry& part : *parts) {
    if (part.type != FileType::kDirectory) continue;
    const auto names = files.list(join_path(folder, part.name), kMostEntries);
    if (!names.has_value()) continue;
    for (const DirectoryEntry& entry : *names) {
      if (!protocol::is_sample_picture_name(entry.name) || used.contains(entry.name)) continue;
      const std::string path = protocol::sample_picture_path(folder, entry.name);
      const auto info = files.info(path);
      if (!info.has_value() || info->mtime_ns > limit) continue;
      if (static_cast<std::size_t>(removed.files) == most) {
        removed.more = true;
        return removed;
      }
      if (!files.remove_file(path).has_value()) continue;
      ++removed.files;
      removed.bytes += info->size_bytes;
    }
  }
  return removed;
}

}  // namespace evalcar::publish
