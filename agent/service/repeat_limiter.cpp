#include "agent/service/repeat_limiter.h"

#include <algorithm>
#include <utility>

namespace evalcar::agent_service {
namespace {

constexpr std::size_t kMaxText = 400;  ///< what differs only behind that counts as the same

}  // namespace

std::optional<std::size_t> RepeatLimiter::admit(std::string_view text, MonotonicTime now) {
  text = text.substr(0, kMaxText);
  auto found = windows_.find(text);
  if (found == windows_.end()) {
    make_room(now);
    found = windows_.emplace(std::string(text), Window{now, 0, 0}).first;
  }
  Window& window = found->second;
  if (now - window.began >= options_.window) {
    window.began = now;
    window.said = 0;
  }
  if (window.said >= options_.at_once) {
    ++window.kept_back;
    return std::nullopt;
  }
  ++window.said;
  return std::exchange(window.kept_back, 0U);
}

void RepeatLimiter::make_room(MonotonicTime now) {
  if (windows_.size() < options_.remembered) return;
  std::erase_if(windows_, [&](const auto& entry) {
    return now - entry.second.began >= options_.window && entry.second.kept_back == 0;
  });
  if (windows_.size() < options_.remembered) return;
  windows_.erase(std::min_element(
      windows_.begin(), windows_.end(),
      [](const auto& a, const auto& b) { return a.second.began < b.second.began; }));
}

}  // namespace evalcar::agent_service
