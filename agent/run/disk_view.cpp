#include "agent/run/disk_view.h"

#include <algorithm>

namespace evalcar::run {

DiskView::WrittenAt DiskView::written_at() const {
  WrittenAt written;
  for (const auto& [key, seen] : complete) {
    std::int64_t& newest = written[key.first];
    newest = std::max(newest, watch::written_ns(seen.files));
  }
  return written;
}

std::optional<std::int64_t> DiskView::step_written_last() const {
  const WrittenAt written = written_at();
  const auto last =
      std::max_element(written.begin(), written.end(), [](const auto& one, const auto& other) {
        return std::pair(one.second, one.first) < std::pair(other.second, other.first);
      });
  return last == written.end() ? std::nullopt : std::optional(last->first);
}

}  // namespace evalcar::run
