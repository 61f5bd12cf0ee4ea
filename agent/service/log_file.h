// A log file that others may rename, truncate or move to a full disk while it is written.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "store/base/result.h"

namespace evalcar::agent_service {

struct LogFileOptions {
  std::string path;
  std::uint64_t max_bytes = std::uint64_t{32} << 20U;  ///< then it becomes <path>.1; 0: never
  int kept = 3;                                        ///< <path>.1 (the newest) to <path>.<kept>
};

/// Not thread-safe. Every line goes to the file that has the name at that moment: where it was
/// renamed or removed (logrotate's `create`), a new one is begun; where it was truncated
/// (`copytruncate`), it goes on at its new end.
class LogFile {
 public:
  /// Creates the file, mode 0640, or goes on at its end; its folder must be there. Errors: kIo;
  /// kInvalidArgument: something is there that is neither a file nor a device.
  static Result<std::unique_ptr<LogFile>> open(LogFileOptions options);
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  /// Whole lines, with their newlines, in one write. What cannot be written (a full disk) is lost,
  /// counted, and said in the file as soon as it can be.
  void write(std::string_view lines);
  /// Lines that were lost since the last one that was written.
  std::uint64_t lost() const { return lost_; }

 private:
  explicit LogFile(LogFileOptions options) : options_(std::move(options)) {}

  Status open_now();
  void follow_name();
  void rotate_before(std::size_t bytes);
  bool append(std::string_view bytes);
  void close_now();

  LogFileOptions options_;
  int fd_ = -1;
  bool torn_ = false;  ///< the last line has no end
  std::uint64_t lost_ = 0;
  std::string trouble_;
};

}  // namespace evalcar::agent_service
