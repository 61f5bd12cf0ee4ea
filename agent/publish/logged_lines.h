// The lines of metrics.jsonl, read back a piece at a time.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "store/base/line_reader.h"

namespace evalcar::publish {

struct LoggedLine {
  std::string text;
  nlohmann::ordered_json json;
  std::int64_t seq = 0;
};

/// Lines that are objects with a seq, as ours are; others are passed over, and a torn tail is left
/// alone. Not thread-safe.
class LoggedLines {
 public:
  /// `files` must outlive it. Without a file there is no line. kCorruption: it is larger than
  /// anything of ours.
  static Result<LoggedLines> open(const FileSystem& files, const std::string& dir);

  /// One piece of work, which may find a line; errors as LineReader's. False: there is none left.
  Result<bool> step(std::optional<LoggedLine>& found);

 private:
  std::optional<LineReader> reader_;
};

/// The generation of the run that the newest line in `dir` is of, if its name is `<stem>-<n>`; else
/// 0. Reads the end of the file alone.
std::int64_t published_generation(const FileSystem& files, const std::string& dir,
                                  const std::string& stem);

}  // namespace evalcar::publish
