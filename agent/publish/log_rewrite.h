// metrics.jsonl anew: its lines, with others among them, in a file that takes its place as a whole.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "store/base/file_system.h"
#include "store/base/line_reader.h"
#include "store/base/result.h"

namespace evalcar::publish {

/// Made a piece at a time. Nothing is held open between two; until replace() readers see the old
/// file alone. Not thread-safe.
class LogRewrite {
 public:
  using Lines = std::deque<std::pair<std::int64_t, std::string>>;  ///< (seq, line)

  /// `among`: by seq, each put before the first line of a seq as large; what is no line of ours
  /// stays behind the one before it. `files` must outlive it.
  static Result<LogRewrite> begin(FileSystem& files, std::string path, Lines among);
  LogRewrite(LogRewrite&& other) noexcept;
  LogRewrite& operator=(LogRewrite&&) = delete;
  ~LogRewrite();  ///< removes what was not put in place

  enum class Step {
    kLine,   ///< a line was taken over; there may be another one at once
    kPiece,  ///< a piece of the file was read or written
    kLast,   ///< there is none left
  };
  Result<Step> step();
  /// Puts it in the file's place, durably. After the last step().
  Status replace();

 private:
  LogRewrite(FileSystem& files, std::string path, Lines among, LineReader source);
  Status write_out();

  FileSystem* files_;
  std::string path_;
  std::string temporary_;
  Lines among_;
  std::size_t next_ = 0;  ///< of among_
  LineReader source_;
  std::int64_t seq_ = 0;       ///< the largest so far
  std::string text_;           ///< not written yet
  std::uint64_t written_ = 0;  ///< bytes of the temporary file
};

}  // namespace evalcar::publish
