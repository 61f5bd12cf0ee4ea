// How far the work is, for people: one line that is rewritten on a terminal, a log line now and
// then elsewhere.
#pragma once

#include <string>

#include "store/base/clock.h"

namespace evalcar::cli {

/// Goes to the begin of a terminal's line and empties it.
inline constexpr const char* kClearLine = "\r\033[K";

/// Whether standard error is a terminal whose lines can be rewritten.
bool stderr_rewrites_lines();

/// Not thread-safe. A line of the log takes its place until the next text (set_up_log()).
class ProgressLine {
 public:
  /// `clock` must outlive it.
  explicit ProgressLine(const Clock& clock);
  ~ProgressLine();
  /// Whether somebody watches: a bar is worth its room.
  bool terminal() const { return terminal_; }
  /// Shows `text` if it is new; "" clears the line.
  void show(const std::string& text);

 private:
  const Clock& clock_;
  bool terminal_;
  std::string shown_;
  MonotonicTime shown_at_{};
};

}  // namespace evalcar::cli
