#include "agent/watch/neighbour.h"

#include <algorithm>
#include <limits>

namespace evalcar::watch {
namespace {

std::int64_t newest_of(const std::vector<WatchedFile>& files) {
  std::int64_t newest_ns = std::numeric_limits<std::int64_t>::min();
  for (const WatchedFile& file : files) newest_ns = std::max(newest_ns, file.identity.mtime_ns);
  return newest_ns;
}

}  // namespace

CompleteKind complete_kind(const std::string& folder, checkpoint::Layout layout,
                           const std::vector<WatchedFile>& files) {
  CompleteKind kind{folder, layout, {}, newest_of(files)};
  for (const WatchedFile& file : files) {
    if (!holds_weights(file.relative)) kind.small_files.insert(file.relative);
  }
  return kind;
}

std::optional<std::string> lacks(checkpoint::Layout layout, const std::vector<WatchedFile>& files,
                                 const CompleteKind& other) {
  if (layout != other.layout) return std::nullopt;
  for (const std::string& name : other.small_files) {
    const auto has = [&](const WatchedFile& file) { return file.relative == name; };
    if (std::ranges::none_of(files, has)) return name;
  }
  return std::nullopt;
}

std::string why_remnant(checkpoint::Layout layout, const std::vector<WatchedFile>& files,
                        std::int64_t folder_changed_ns, const CompleteKind& newer) {
  const std::int64_t newest_ns = newest_of(files);
  if (newest_ns > newer.newest_ns || folder_changed_ns < newer.newest_ns) return {};
  const auto missing = lacks(layout, files, newer);
  if (!missing.has_value()) return {};
  return *missing + " is in " + newer.folder +
         " and not here, and something of this folder was deleted since that was written: what is "
         "left of it; if it is whole, touch one of its files";
}

}  // namespace evalcar::watch
