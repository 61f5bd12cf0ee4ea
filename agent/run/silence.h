// Whether the file system of an output directory answers. While it does not, nothing on it is
// touched and nothing is concluded.
#pragma once

#include <optional>
#include <string>

#include "store/base/clock.h"
#include "store/base/file_system.h"

namespace evalcar::run {

/// Not thread-safe. Both references must outlive it.
class Silence {
 public:
  Silence(const FileSystem& files, const Clock& clock, std::string path)
      : files_(files), clock_(clock), path_(std::move(path)) {}

  enum class Answer {
    kYes,
    kAgain,      ///< after a silence: what changed meanwhile was not seen
    kNo,         ///< maybe in a moment
    kNoForLong,  ///< what runs on it lets go, for the evaluations of other directories
  };
  /// Asks, and says what changed.
  Answer look();
  /// As of the last look.
  bool lasts() const { return since_.has_value(); }
  /// How the file system says so; "" if it answers.
  const std::string& reason() const { return reason_; }

 private:
  const FileSystem& files_;
  const Clock& clock_;
  std::string path_;
  std::optional<MonotonicTime> since_;
  std::string reason_;
};

}  // namespace evalcar::run
