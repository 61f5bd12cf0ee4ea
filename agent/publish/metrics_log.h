// The file metrics.jsonl: appended to by whole lines, each followed by fsync.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/publish/log_rewrite.h"
#include "store/base/file_system.h"
#include "store/base/line_reader.h"
#include "store/base/result.h"

namespace evalcar::publish {

/// "seq" of a line; absent if it is none of ours.
std::optional<std::int64_t> seq_of(const std::string& line);

/// Not thread-safe. The file is read once, and again when somebody else changed it. A long one is
/// read and replaced in slices: where a call ends with kCancelled, the next refresh() goes on, and
/// nothing else is asked or done before it is through. No file is held open meanwhile.
class MetricsLog {
 public:
  /// `files` must outlive it. `fence`, `enough`: see PublisherOptions; may be null. `enough` is
  /// asked behind each piece of work that has another one behind it.
  MetricsLog(FileSystem& files, std::string path, std::function<Status()> fence = {},
             std::function<bool()> enough = {})
      : files_(files),
        path_(std::move(path)),
        fence_(std::move(fence)),
        enough_(std::move(enough)) {}

  /// Cuts a torn tail (text after the last newline: a write that a kill or a full disk interrupted)
  /// and learns the lines; goes on with what a slice of replace() or restore() left. A missing file
  /// is an empty one. Lines that are not JSON objects are left alone and count as nothing.
  Status refresh();
  /// After refresh(): the largest seq in the file; 0 if there is none.
  std::int64_t last_seq() const { return last_seq_; }
  /// After refresh(): whether the line of an evaluation is there.
  bool holds(const std::string& evaluation_key) const { return lines_.contains(evaluation_key); }
  /// After refresh(): the whole line of an evaluation, if it is there. kCorruption, kUnavailable:
  /// the file changed meanwhile.
  Result<std::optional<std::string>> line_of(const std::string& evaluation_key) const;
  /// After refresh(): the line with this seq, if it is there and ours. Errors as line_of().
  Result<std::optional<std::string>> line_with_seq(std::int64_t seq) const;
  /// Another number after each look at the whole file: what was known of it may be wrong.
  std::int64_t looks() const { return looks_; }
  /// Replaces the file by a copy of its whole lines; without a file nothing happens.
  Status replace();
  /// Appends the line and its newline in one write, then fsync. On an error the file has the line
  /// not at all, or whole: what was written of it is cut again, at the latest by the next
  /// refresh(). After a failed fsync or close the file is replaced as a whole, since its content is
  /// unknown then.
  Status append(const std::string& line);
  /// Puts lines back that the file had once and has no more, each at the place of its seq. Those
  /// above all others are appended; else the file is replaced, so that readers start over. Where
  /// somebody else changes the file before all of them are back, the rest is forgotten: looks() is
  /// another one then.
  Status restore(LogRewrite::Lines lines);

 private:
  Status learn_all(const FileInfo& info);
  Status cut_tail(std::uint64_t whole_bytes);
  void forget_lines();
  Status put_back();
  Status rewrite();
  Status append_line(const std::string& line);
  Status ask_fence() const { return fence_ ? fence_() : Status(); }
  Status ask_enough() const;
  /// Where a line lies, its newline left out: a long run's lines are not held in memory.
  struct Place {
    std::uint64_t offset = 0;
    std::size_t size = 0;
    std::optional<std::int64_t> seq;
  };
  /// The file while its lines are learned.
  struct Reading {
    FileInfo info;
    LineReader lines;
  };
  void learn_line(std::uint64_t offset, const std::string& line);
  Result<std::optional<std::string>> read_line(const std::string& key, const Place& place) const;

  FileSystem& files_;
  std::string path_;
  std::function<Status()> fence_;
  std::function<bool()> enough_;
  std::optional<Reading> reading_;
  std::optional<LogRewrite> rewrite_;
  LogRewrite::Lines lost_;        ///< to be put back, by seq
  std::optional<FileInfo> seen_;  ///< what the file looked like when it was read last
  std::int64_t last_seq_ = 0;
  std::int64_t looks_ = 0;
  std::map<std::string, Place> lines_;  ///< by evaluation key
  bool suspect_ = false;                ///< an fsync or a close failed
};

}  // namespace evalcar::publish
