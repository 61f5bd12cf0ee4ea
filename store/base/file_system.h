// Every access to the disk goes through this interface, so that tests can keep files in memory,
// fail the n-th call, or cut the power. Watched files are read with pread only: an mmap of a file
// that its writer truncates is a SIGBUS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/result.h"

namespace evalcar {

enum class FileType { kRegular, kDirectory, kSymlink, kOther };

/// Who a file is and what it looks like: compared before and after reading, to see that nobody
/// rewrote it.
struct FileInfo {
  FileType type = FileType::kOther;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t link_count = 0;
  std::uint32_t mode = 0;
  std::int64_t mtime_ns = 0;  ///< since the epoch, by the file server's clock
  std::int64_t ctime_ns = 0;

  /// Same device, inode, size and mtime. The ctime may differ: our own link() changes it.
  bool same_content_identity(const FileInfo& other) const {
    return device == other.device && inode == other.inode && size_bytes == other.size_bytes &&
           mtime_ns == other.mtime_ns;
  }
};

struct DirectoryEntry {
  std::string name;  ///< raw bytes; may be anything but '/' and NUL
  FileType type = FileType::kOther;
};

/// An open file for positioned reads. Thread-safe: pread has no shared position.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  /// Fills `out` from `offset` on; short at the end of the file only. Returns the number of bytes
  /// read. Retries EINTR.
  virtual Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> out) const = 0;
  virtual Result<FileInfo> info() const = 0;
  /// A hint that these bytes are read soon: brings them into the page cache meanwhile. Does not
  /// wait for the disk.
  virtual void will_read(std::uint64_t /*offset*/, std::uint64_t /*size*/) const {}
  /// The kernel's number of the open file, for calls that take two files; -1 if there is none.
  virtual int descriptor() const { return -1; }

  /// Fills all of `out` or fails with kCorruption "… ends at …". Thread-safe.
  Status read_exactly_at(std::uint64_t offset, std::span<std::byte> out,
                         std::string_view path) const;
};

/// An open file for appending. Not thread-safe.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  /// Writes all bytes (loops over short writes and EINTR).
  virtual Status append(std::span<const std::byte> bytes) = 0;
  /// Appends bytes of another file that do not pass through this program: blocks that both share
  /// where the file system can and they begin at a block in both, else copied by the kernel.
  /// Returns how many. Fewer than asked: the source ended; 0: or there is no such way between the
  /// two (other file systems, an old kernel), and the bytes have to be read and appended.
  virtual Result<std::uint64_t> append_copy_of(const ReadableFile& /*source*/,
                                               std::uint64_t /*offset*/, std::uint64_t /*size*/) {
    return std::uint64_t{0};
  }
  /// Starts to bring to the disk what was appended so far, so that sync() finds little left to
  /// wait for. May itself wait for the disk's queue; another thread may call it beside append().
  virtual void start_writing_back() {}
  /// fsync. After a failure the file's content is unknown: drop it, write another; never sync the
  /// same one again.
  virtual Status sync() = 0;
  /// Closes and reports what close() says (EDQUOT comes here). Further calls do nothing.
  virtual Status close() = 0;

  Status append(std::string_view text);
};

/// Thread-safe. Paths are bytes; all are used as given (relative to the working directory if
/// relative).
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  /// Opens for reading. Refuses (kInvalidArgument) anything but a regular file, without blocking on
  /// a FIFO. Symlinks are followed.
  virtual Result<std::unique_ptr<ReadableFile>> open_readable(const std::string& path) const = 0;
  /// Creates the file, which must not exist; mode as given, less the umask.
  virtual Result<std::unique_ptr<WritableFile>> create(const std::string& path,
                                                       std::uint32_t mode = 0644) = 0;
  /// Opens an existing or new file for appending.
  virtual Result<std::unique_ptr<WritableFile>> open_appendable(const std::string& path,
                                                                std::uint32_t mode = 0644) = 0;
  /// All entries but "." and "..", sorted by name. At most `limit` of them, else kUnavailable.
  virtual Result<std::vector<DirectoryEntry>> list(const std::string& path,
                                                   std::size_t limit = 100'000) const = 0;
  /// lstat semantics: a link is told as a link.
  virtual Result<FileInfo> info(const std::string& path) const = 0;
  /// stat semantics: links followed.
  virtual Result<FileInfo> info_followed(const std::string& path) const = 0;
  /// The same, asked of the server also where a network file system or FUSE would answer from what
  /// it remembers (for up to a minute): for what must be true now.
  virtual Result<FileInfo> info_now(const std::string& path) const { return info_followed(path); }
  virtual Result<std::string> read_link(const std::string& path) const = 0;
  /// The absolute path without links (realpath).
  virtual Result<std::string> real_path(const std::string& path) const = 0;
  virtual Status make_directory(const std::string& path, std::uint32_t mode = 0755) = 0;
  /// Replaces `to` if it exists.
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  virtual Status remove_file(const std::string& path) = 0;
  virtual Status remove_directory(const std::string& path) = 0;
  /// kIo that no later try can help (`retryable` is false): another file system, another owner's
  /// file, one that has no links.
  virtual Status hard_link(const std::string& from, const std::string& to) = 0;
  /// Makes `to`, which must not exist, a file of the same content that shares the blocks of `from`
  /// until one of them is written to (a reflink: Btrfs, XFS, …). kUnsupported where the file system
  /// cannot do that, or not between these two places; then there is no `to`.
  virtual Status clone_file(const std::string& from, const std::string& to);
  virtual Status symbolic_link(const std::string& target, const std::string& path) = 0;
  /// Sets the mtime, atime unchanged (utimensat). Does not follow links.
  virtual Status set_mtime(const std::string& path, std::int64_t mtime_ns) = 0;
  virtual Status truncate(const std::string& path, std::uint64_t size_bytes) = 0;
  /// fsync of the folder: makes creations and renames in it durable.
  virtual Status sync_directory(const std::string& path) = 0;
  /// Bytes that an unprivileged process can still write on the file system of `path`.
  virtual Result<std::uint64_t> free_bytes(const std::string& path) const = 0;
  /// The f_type of statfs (NFS_SUPER_MAGIC, …): file_system_kind() says what it means.
  virtual Result<std::uint64_t> file_system_type(const std::string& path) const = 0;
  /// Makes a call on `path` that has no name here (a lock, a watch), as the others are made: where
  /// those are bounded in time, `call` may be given up and come back later, so it must own all that
  /// it touches.
  virtual Status perform(const std::string& path, std::function<Status()> call) const;
  /// The same for what needs no answer, as closing: it is made after the calls before it, maybe
  /// only when the file system answers again, and nobody waits for it there.
  virtual void perform_later(const std::string& path, std::function<void()> call) const;
  /// kUnavailable: calls on `path` are given up, because the file system does not answer. What was
  /// not found there meanwhile may be there. Does not look at the disk.
  virtual Status answers(const std::string& path) const;
  /// From now on make_directories() does not make `directory` (an absolute path), nor what is above
  /// it on the way to what is below it: it is somebody else's, who may have moved it a moment ago.
  virtual void leave_to_owner(const std::string& /*directory*/) {}
  virtual bool is_left_to_owner(const std::string& /*directory*/) const { return false; }
};

/// The machine's own file system.
class RealFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<ReadableFile>> open_readable(const std::string& path) const override;
  Result<std::unique_ptr<WritableFile>> create(const std::string& path,
                                               std::uint32_t mode) override;
  Result<std::unique_ptr<WritableFile>> open_appendable(const std::string& path,
                                                        std::uint32_t mode) override;
  Result<std::vector<DirectoryEntry>> list(const std::string& path,
                                           std::size_t limit) const override;
  Result<FileInfo> info(const std::string& path) const override;
  Result<FileInfo> info_followed(const std::string& path) const override;
  Result<FileInfo> info_now(const std::string& path) const override;
  Result<std::string> read_link(const std::string& path) const override;
  Result<std::string> real_path(const std::string& path) const override;
  Status make_directory(const std::string& path, std::uint32_t mode) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status remove_file(const std::string& path) override;
  Status remove_directory(const std::string& path) override;
  Status hard_link(const std::string& from, const std::string& to) override;
  Status clone_file(const std::string& from, const std::string& to) override;
  Status symbolic_link(const std::string& target, const std::string& path) override;
  Status set_mtime(const std::string& path, std::int64_t mtime_ns) override;
  Status truncate(const std::string& path, std::uint64_t size_bytes) override;
  Status sync_directory(const std::string& path) override;
  Result<std::uint64_t> free_bytes(const std::string& path) const override;
  Result<std::uint64_t> file_system_type(const std::string& path) const override;
};

/// "a/b" from "a" and "b"; "b" if `folder` is empty.
std::string join_path(std::string_view folder, std::string_view name);
/// The last component; "checkpoint-5" of "/x/checkpoint-5/".
std::string base_name(std::string_view path);
/// Everything before the last component; "." if there is none.
std::string parent_path(std::string_view path);

/// Reads a whole small file. kCorruption if it is larger than `limit_bytes`.
Result<std::string> read_file(const FileSystem& files, const std::string& path,
                              std::uint64_t limit_bytes);
/// The same of an open file; `path` names it in errors.
Result<std::string> read_file(const ReadableFile& file, const std::string& path,
                              std::uint64_t limit_bytes);
/// mkdir -p; the new folders' names are synced. kNotFound: one that is missing is left to its
/// owner.
Status make_directories(FileSystem& files, const std::string& path);
/// Publishes a file: temporary name in the same folder, write, fsync, close, rename, fsync of the
/// folder. On a failure the old content stays and the temporary file is removed. Readers see the
/// old or the new content, never a part.
Status write_file_atomically(FileSystem& files, const std::string& path, std::string_view content,
                             std::uint32_t mode = 0644);
/// rm -r, without following links; a missing path is success.
Status remove_tree(FileSystem& files, const std::string& path);

}  // namespace evalcar
