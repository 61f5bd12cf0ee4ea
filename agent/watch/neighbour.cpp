#include "agent/watch/neighbour.h"

#include <algorithm>
#include <limits>
#include <set>

namespace evalcar::watch {
namespace {

constexpr int kRestsToSettle = 4;

std::set<std::string> small_files(const WholeKind& kind) {
  std::set<std::string> names;
  for (const auto& [name, size] : kind.sizes) {
    if (!holds_weights(name)) names.insert(name);
  }
  return names;
}

}  // namespace

WholeKind whole_kind(const std::string& folder, checkpoint::Layout layout,
                     const std::vector<WatchedFile>& files, bool trainer_state) {
  WholeKind kind{folder, layout, {}, trainer_state, std::numeric_limits<std::int64_t>::min()};
  for (const WatchedFile& file : files) {
    kind.sizes[file.relative] = file.identity.size_bytes;
    kind.newest_ns = std::max(kind.newest_ns, file.identity.mtime_ns);
  }
  return kind;
}

bool is_alike(const WholeKind& one, const WholeKind& other) {
  return one.layout == other.layout && one.sizes == other.sizes &&
         one.trainer_state == other.trainer_state;
}

bool has_same_small_files(const WholeKind& one, const WholeKind& other) {
  return one.layout == other.layout && small_files(one) == small_files(other);
}

std::string why_remnant(const WholeKind& kind, std::int64_t folder_changed_ns,
                        const WholeKind& newer) {
  if (kind.layout != newer.layout || kind.newest_ns >= newer.newest_ns) return {};
  if (folder_changed_ns < newer.newest_ns) return {};
  for (const std::string& name : small_files(newer)) {
    if (kind.sizes.contains(name)) continue;
    const char* const own =
        kind.layout == checkpoint::Layout::kLoraAdapter ? "adapter_config.json" : "config.json";
    return name + " is in " + newer.folder +
           " and not here, and a name in this folder came or went since that was written: it may "
           "be what a delete has left; if it is whole, touch its " +
           own;
  }
  return {};
}

void CommonFiles::add(const WholeKind& complete) {
  if (!first_.has_value()) first_ = complete;
  unlike_ |= !is_alike(*first_, complete);
}

bool CommonFiles::has_all(const WholeKind& kind) const {
  return first_.has_value() && !unlike_ && is_alike(*first_, kind);
}

std::chrono::milliseconds short_rest(std::chrono::milliseconds settle_time) {
  return settle_time / kRestsToSettle;
}

}  // namespace evalcar::watch
