// Which files something was made of, so that it can be told later whether they are still the same.
#pragma once

#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "evaluator/service/read_only_file_system.h"
#include "evaluator/tasks/file_identity.h"
#include "store/base/clock.h"
#include "store/base/guarded.h"

namespace evalcar::service {

/// A file as it was when it was read.
struct ReadFile {
  std::string path;
  tasks::FileIdentity identity;
  bool operator==(const ReadFile&) const = default;
};

/// Whether each file is still the one that was read. A look at its inode, no read. False soon after
/// `stop`.
bool are_unchanged(const FileSystem& files, const std::vector<ReadFile>& read,
                   const std::stop_token& stop = {});

/// A file system for reading that remembers each file that is opened through it. Thread-safe.
class ReadRecord final : public ReadOnlyFileSystem {
 public:
  /// `files` and `clock` must outlive it, and `files` the files that it opens.
  ReadRecord(const FileSystem& files, const Clock& clock) : files_(files), clock_(clock) {}

  /// All files so far. Absent where that proves nothing: one is no longer what it was when it was
  /// first opened, or could have changed since then without its identity telling
  /// (tasks::is_telling(), at the open), or there are too many; and soon after `stop`.
  std::optional<std::vector<ReadFile>> proof(const std::stop_token& stop = {}) const;

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
  struct Seen {
    std::map<std::string, tasks::FileIdentity> files;
    std::map<std::uint64_t, bool> keeps_ctime;  // of each device: asked once
    bool proves_nothing = false;
  };
  bool proves(Seen& seen, const std::string& path, const tasks::FileIdentity& identity,
              WallTime before) const;

  const FileSystem& files_;
  const Clock& clock_;
  mutable Guarded<Seen> seen_;
};

}  // namespace evalcar::service
