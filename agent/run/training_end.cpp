#include "agent/run/training_end.h"

#include <signal.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <string_view>

namespace evalcar::run {
namespace {

constexpr std::chrono::seconds kEndPause{1};
/// A process that is there, and of which /proc shows nothing (hidepid, another user's).
constexpr std::string_view kHidden = "hidden";

}  // namespace

TrainingEnd::TrainingEnd(const FileSystem& files, const Clock& clock,
                         const config::WatchSettings& settings, const std::string& output_dir)
    : files_(files),
      clock_(clock),
      settings_(settings),
      looked_at_(clock.monotonic_now() - kEndPause) {
  const std::string& marker = settings.exit_marker;
  if (!marker.empty()) marker_ = marker.starts_with('/') ? marker : join_path(output_dir, marker);
  if (settings.exit_with_pid > 0) process_ = start_of_process();
}

bool TrainingEnd::watches() const {
  return !since_.has_value() && (!marker_.empty() || settings_.exit_with_pid > 0);
}

void TrainingEnd::step(bool at_last_step) {
  const MonotonicTime now = clock_.monotonic_now();
  if (since_.has_value() || (now - looked_at_ < kEndPause && !at_last_step)) return;
  looked_at_ = now;
  const std::string why = reason(at_last_step);
  if (why.empty()) return;
  since_ = now;
  spdlog::info("training is over: {}; what is left is evaluated, then this ends", why);
}

std::string TrainingEnd::reason(bool at_last_step) {
  if (at_last_step && settings_.exit_at_max_steps) return "its last step was reached";
  if (!marker_.empty() && files_.info_followed(marker_).has_value()) return marker_ + " is there";
  if (settings_.exit_with_pid == 0) return "";
  const std::string now = start_of_process();
  const bool unknown = now == kHidden || (process_ == kHidden && !now.empty());
  if (!process_.empty() && (now == process_ || unknown)) return "";
  return "process " + std::to_string(settings_.exit_with_pid) +
         (process_.empty() ? " is not there (watch.exit_with_pid)" : " has ended");
}

std::string TrainingEnd::start_of_process() const {
  const auto file =
      files_.open_readable("/proc/" + std::to_string(settings_.exit_with_pid) + "/stat");
  if (!file.has_value()) {
    const bool gone = ::kill(static_cast<pid_t>(settings_.exit_with_pid), 0) != 0 && errno == ESRCH;
    return gone ? "" : std::string(kHidden);
  }
  std::array<char, 2048> text{};
  const auto size = (*file)->read_at(0, std::as_writable_bytes(std::span<char>(text)));
  if (!size.has_value()) return "";
  std::string_view stat(text.data(), *size);
  const std::size_t name_end = stat.rfind(") ");  // the name may hold anything
  if (name_end == std::string_view::npos) return "";
  stat.remove_prefix(name_end + 2);
  if (stat.empty() || stat.front() == 'Z' || stat.front() == 'X') return "";
  for (int field = 3; field < 22; ++field) {  // starttime is the 22nd (proc(5))
    stat.remove_prefix(std::min(stat.find(' ') + 1, stat.size()));
  }
  return std::string(stat.substr(0, stat.find(' ')));
}

}  // namespace evalcar::run
