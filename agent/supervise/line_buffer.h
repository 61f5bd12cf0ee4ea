// Cuts a stream of bytes into lines, in bounded memory.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace evalcar::supervise {

/// Not thread-safe.
class LineBuffer {
 public:
  explicit LineBuffer(std::size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  void add(std::string_view bytes) { buffer_.append(bytes); }
  /// The next whole line, without its newline.
  std::optional<std::string> next();
  /// The unfinished line is longer than the limit: the stream can no longer be cut into lines.
  bool overflowed() const { return buffer_.size() - start_ > limit_bytes_ && !has_line(); }
  /// What follows the last newline.
  std::string_view rest() const { return std::string_view(buffer_).substr(start_); }
  void clear();

 private:
  bool has_line() const { return buffer_.find('\n', searched_) != std::string::npos; }

  std::size_t limit_bytes_;
  std::string buffer_;
  std::size_t start_ = 0;     ///< of the next line
  std::size_t searched_ = 0;  ///< no newline before this: keeps the search linear
};

}  // namespace evalcar::supervise
