// The event file of a folder: which events it has, and new ones at its end. Known by a hash each,
// so that a long run's file is neither held in memory nor read again for each event.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "agent/publish/event_file.h"
#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::publish {

/// Not thread-safe. The file is read once, and again when somebody else changed it; nothing is held
/// open between two calls.
class EventLog {
 public:
  /// `files` must outlive it. `enough` is asked behind each mebibyte that is read; null = never.
  EventLog(FileSystem& files, std::string path, std::function<bool()> enough = {})
      : files_(files), path_(std::move(path)), enough_(std::move(enough)) {}

  const std::string& path() const { return path_; }
  /// Learns what the file has; a missing one is an empty one. kCancelled: there was enough of it
  /// for now, the next call goes on; what is asked before that one is through is not known.
  Status refresh();
  /// After refresh(): how many events it has, that of the file's version left out.
  std::int64_t count() const { return records_ > 0 ? records_ - 1 : 0; }
  /// Appends those of `events` that are not there, whatever their time, in their order and in one
  /// write, synced (the file is made with its folder and first record if missing). A torn tail is
  /// cut first. kCancelled: as refresh().
  Status append(const std::vector<TimedEvent>& events);

 private:
  Status read_piece();
  void learn(std::string_view event);
  void forget();

  FileSystem& files_;
  std::string path_;
  std::function<bool()> enough_;
  std::optional<FileInfo> seen_;   ///< what the file looked like when its records were learned
  bool known_ = false;             ///< all records of it are learned
  std::uint64_t whole_bytes_ = 0;  ///< of the records that are learned
  std::int64_t records_ = 0;
  std::unordered_set<std::uint64_t> there_;  ///< hashes of events, less their times
};

}  // namespace evalcar::publish
