#include "agent/cli/progress_line.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace evalcar::cli {
namespace {

constexpr std::chrono::milliseconds kTerminalPause{200};
constexpr std::chrono::seconds kLogPause{15};

}  // namespace

bool stderr_rewrites_lines() {
  const char* const kind = std::getenv("TERM");
  const bool dumb = kind == nullptr || std::string_view(kind) == "dumb";
  return !dumb && ::isatty(STDERR_FILENO) == 1;
}

ProgressLine::ProgressLine(const Clock& clock)
    : clock_(clock),
      terminal_(stderr_rewrites_lines()),
      shown_at_(clock.monotonic_now() - kLogPause) {}

ProgressLine::~ProgressLine() { show(""); }

void ProgressLine::show(const std::string& text) {
  if (text == shown_) return;
  const MonotonicTime now = clock_.monotonic_now();
  const bool clearing = text.empty();
  if (!clearing && now - shown_at_ < (terminal_ ? kTerminalPause : kLogPause)) return;
  if (terminal_) {
    std::fprintf(stderr, "%s%s", kClearLine, text.c_str());
    std::fflush(stderr);
  } else if (!clearing) {
    spdlog::info("{}", text);
  }
  shown_ = text;
  if (!clearing) shown_at_ = now;
}

}  // namespace evalcar::cli
