// The samples files of a published evaluation, read back a piece at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "store/base/line_reader.h"
#include "store/state/types.h"

namespace evalcar::publish {

/// Not thread-safe.
class LoggedSamples {
 public:
  /// `published` is as published_of() gives it; it and `files` must outlive this.
  LoggedSamples(const FileSystem& files, state::PublishedEvaluation& published);

  /// One piece of work. False: there is none left, and `published` has its samples and the names of
  /// all its files. Absent samples files are no fault: evaluate.log_samples may be off.
  /// kCorruption: a line is no sample, or they are larger than anything of ours.
  Result<bool> step();

 private:
  Status begin_file();
  Status take_sample();
  const protocol::TaskResult& task() const { return published_.result.tasks[task_]; }

  const FileSystem& files_;
  state::PublishedEvaluation& published_;
  std::string results_;
  std::string path_;                  ///< of the file that is read
  std::optional<LineReader> reader_;  ///< of it
  std::size_t task_ = 0;              ///< in published_.result.tasks: of that file, or the next one
  std::uint64_t left_bytes_;          ///< that the files from here on may have together
};

}  // namespace evalcar::publish
