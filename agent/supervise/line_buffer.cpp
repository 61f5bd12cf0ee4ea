#include "agent/supervise/line_buffer.h"

namespace evalcar::supervise {

std::optional<std::string> LineBuffer::next() {
  const std::size_t newline = buffer_.find('\n', searched_);
  if (newline == std::string::npos) {
    buffer_.erase(0, start_);
    start_ = 0;
    searched_ = buffer_.size();
    return std::nullopt;
  }
  std::string line = buffer_.substr(start_, newline - start_);
  start_ = searched_ = newline + 1;
  return line;
}

void LineBuffer::clear() {
  buffer_.clear();
  start_ = searched_ = 0;
}

}  // namespace evalcar::supervise
