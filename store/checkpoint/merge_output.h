// One file of weights that is being written: what was appended is on its way to the disk while more
// comes, so that the last wait, for all of it, is short.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <thread>

#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::checkpoint {

/// Not thread-safe; has a thread of its own, if the system gives one, once there is something to
/// write back.
class MergeOutput {
 public:
  explicit MergeOutput(std::unique_ptr<WritableFile> file);

  Status append(std::span<const std::byte> bytes);
  Status append(std::string_view text);
  /// See WritableFile.
  Result<std::uint64_t> append_copy_of(const ReadableFile& source, std::uint64_t offset,
                                       std::uint64_t size);
  /// Syncs and closes. Nothing may follow.
  Status finish();

 private:
  void appended(std::uint64_t bytes);
  void write_back(const std::stop_token& stop);

  std::unique_ptr<WritableFile> file_;
  std::uint64_t since_told_ = 0;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool wanted_ = false;  // under mutex_
  bool alone_ = false;   // the system gave no thread
  std::jthread thread_;  // the last: it uses the others
};

}  // namespace evalcar::checkpoint
