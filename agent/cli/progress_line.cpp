#include "agent/cli/progress_line.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdio>

namespace evalcar::cli {
namespace {

constexpr std::chrono::milliseconds kTerminalPause{200};
constexpr std::chrono::seconds kLogPause{15};

}  // namespace

ProgressLine::ProgressLine(const Clock& clock)
    : clock_(clock),
      terminal_(::isatty(STDERR_FILENO) == 1),
      shown_at_(clock.monotonic_now() - kLogPause) {}

ProgressLine::~ProgressLine() { show(""); }

void ProgressLine::show(const std::string& text) {
  if (text == shown_) return;
  const MonotonicTime now = clock_.monotonic_now();
  const bool clearing = text.empty();
  if (!clearing && now - shown_at_ < (terminal_ ? kTerminalPause : kLogPause)) return;
  if (terminal_) {
    std::fprintf(stderr, "\r\033[K%s", text.c_str());
    std::fflush(stderr);
  } else if (!clearing) {
    spdlog::info("{}", text);
  }
  shown_ = text;
  if (!clearing) shown_at_ = now;
}

}  // namespace evalcar::cli
