// The sign of life that a stuck thread cannot give: a count that rises only while work gets on.
//
// A heartbeat comes from a thread of its own, and so it goes on when the thread that works hangs in
// a dead device or in a read that never returns. So it carries the pulse, and the agent compares.
// The beats are small on purpose, for what lies between two of them is what the agent waits for at
// most: one read of a file, one picture, one layer of one batch.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "evaluator/service/read_only_file_system.h"
#include "store/base/file_system.h"

namespace evalcar::service {

/// Thread-safe.
class Pulse {
 public:
  void beat() { count_.fetch_add(1, std::memory_order_relaxed); }
  std::uint64_t count() const { return count_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> count_ = 0;
};

/// A file system for reading that beats after every call that came back: whatever is read through
/// it (weights, checksums, data sets, tokenizers) shows its advance. Thread-safe.
class PulsingFileSystem final : public ReadOnlyFileSystem {
 public:
  /// Both must outlive it and the files that it opens.
  PulsingFileSystem(const FileSystem& files, Pulse& pulse) : files_(files), pulse_(pulse) {}

  Result<std::unique_ptr<ReadableFile>> open_readable(const std::string& path) const override;
  Result<std::vector<DirectoryEntry>> list(const std::string& path,
                                           std::size_t limit) const override;
  Result<FileInfo> info(const std::string& path) const override;
  Result<FileInfo> info_followed(const std::string& path) const override;
  Result<FileInfo> info_now(const std::string& path) const override;
  Result<std::string> read_link(const std::string& path) const override;
  Result<std::string> real_path(const std::string& path) const override;
  Result<std::uint64_t> free_bytes(const std::string& path) const override;
  Result<std::uint64_t> file_system_type(const std::string& path) const override;

 private:
  const FileSystem& files_;
  Pulse& pulse_;
};

}  // namespace evalcar::service
