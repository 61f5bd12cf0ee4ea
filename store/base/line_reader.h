// The lines of a file that may be large, a piece at a time, for a loop that has other things to do
// between. Nothing is held open meanwhile: whoever deletes or unmounts is not in our way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar {

/// Not thread-safe.
class LineReader {
 public:
  static constexpr std::size_t kPieceBytes = std::size_t{1} << 20U;
  struct Limits {
    std::uint64_t file_bytes = 0;
    std::size_t line_bytes = 0;
  };
  enum class Found {
    kLine,     ///< take_line() has it
    kTooLong,  ///< a line of more than the limit was passed over
    kPiece,    ///< no whole line yet: a piece of the file was read, the next call goes on
    kEnd,      ///< no further line; text behind the last newline is none
  };

  /// Of what the file holds now; what is appended later is not read. `files` must outlive it.
  /// kCorruption: the file is larger than its limit.
  static Result<LineReader> open(const FileSystem& files, std::string path, Limits limits);

  /// Gives a line, or reads at most one piece. kUnavailable: another file lies there now, or it was
  /// cut.
  Result<Found> next();
  /// The line that next() found, without its newline.
  std::string take_line() { return std::exchange(line_, {}); }
  /// Where the line that next() found begins in the file.
  std::uint64_t line_begin() const { return line_begin_; }
  /// Behind the last newline that next() met.
  std::uint64_t lines_end() const { return lines_end_; }
  /// What no piece was read of yet.
  std::uint64_t bytes_left() const { return info_.size_bytes - offset_; }
  /// Of the file, as it was at the beginning.
  std::uint64_t file_bytes() const { return info_.size_bytes; }

 private:
  LineReader(const FileSystem& files, std::string path, Limits limits, const FileInfo& info)
      : files_(&files), path_(std::move(path)), limits_(limits), info_(info) {}
  Result<Found> read_piece();

  const FileSystem* files_;
  std::string path_;
  Limits limits_;
  FileInfo info_;             ///< as it was at the beginning
  std::uint64_t offset_ = 0;  ///< what lies before was read
  std::string text_;          ///< of that, the last
  std::size_t start_ = 0;     ///< in text_: where the next line begins
  std::size_t searched_ = 0;  ///< in text_: no newline between start_ and here
  bool skipping_ = false;     ///< the line that begins there is too long, and its beginning gone
  std::string line_;
  std::uint64_t line_begin_ = 0;
  std::uint64_t lines_end_ = 0;
};

}  // namespace evalcar
