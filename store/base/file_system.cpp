#include "store/base/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>

#include "store/base/quota.h"

namespace evalcar {
namespace {

/// Closes a descriptor on scope exit unless released.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

/// Asks again what failed because an NFS server forgot the handle that the kernel had: by its name
/// it is found anew, or is gone.
template <typename Call>
auto again_if_stale(const Call& call) {
  errno = 0;
  auto result = call();
  // Set before: a call that went well leaves it. NOLINTNEXTLINE(clang-analyzer-unix.Errno)
  if (errno == ESTALE) result = call();
  return result;
}

FileInfo to_file_info(const struct stat& status) {
  FileInfo info;
  if (S_ISREG(status.st_mode)) {
    info.type = FileType::kRegular;
  } else if (S_ISDIR(status.st_mode)) {
    info.type = FileType::kDirectory;
  } else if (S_ISLNK(status.st_mode)) {
    info.type = FileType::kSymlink;
  }
  info.device = status.st_dev;
  info.inode = status.st_ino;
  info.size_bytes = static_cast<std::uint64_t>(status.st_size);
  info.link_count = status.st_nlink;
  info.mode = status.st_mode & 07777U;
  info.mtime_ns = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  info.ctime_ns = std::int64_t{status.st_ctim.tv_sec} * 1'000'000'000 + status.st_ctim.tv_nsec;
  return info;
}

class RealReadableFile final : public ReadableFile {
 public:
  RealReadableFile(Descriptor fd, std::string path, const FileInfo& identity)
      : fd_(std::move(fd)), path_(std::move(path)), identity_(identity) {}

  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    constexpr auto kMaxOffset = static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
    if (offset > kMaxOffset || out.size() > kMaxOffset - offset) {
      return make_error(ErrorCode::kInvalidArgument, "read: " + path_ + ": offset out of range");
    }
    std::size_t done = 0;
    int fd = fd_.get();
    std::optional<Descriptor> again;
    while (done < out.size()) {
      // Linux moves at most 0x7ffff000 bytes in one call; a smaller piece keeps a stop prompt.
      const std::size_t piece = std::min<std::size_t>(out.size() - done, std::size_t{1} << 30U);
      const ssize_t n = ::pread(fd, out.data() + done, piece, static_cast<off_t>(offset + done));
      if (n < 0) {
        const int failed = errno;
        if (failed == EINTR) continue;
        if (failed != ESTALE || again.has_value()) {
          return errno_error("read at offset " + std::to_string(offset + done), path_, failed);
        }
        EVALCAR_RETURN_IF_ERROR(open_again(again));
        fd = again->get();
        continue;
      }
      if (n == 0) break;
      done += static_cast<std::size_t>(n);
    }
    return done;
  }

  Result<FileInfo> info() const override {
    struct stat status{};
    if (::fstat(fd_.get(), &status) != 0) return errno_error("fstat", path_, errno);
    return to_file_info(status);
  }

  void will_read(std::uint64_t offset, std::uint64_t size) const override {
    // One call brings in no more than the device's readahead, which may be as small as this.
    constexpr std::uint64_t kPiece = std::uint64_t{128} << 10U;
    constexpr auto kMaxOffset = static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
    if (offset > kMaxOffset || size > kMaxOffset - offset) return;
    for (std::uint64_t done = 0; done < size; done += kPiece) {
      (void)::posix_fadvise(fd_.get(), static_cast<off_t>(offset + done),
                            static_cast<off_t>(std::min(kPiece, size - done)), POSIX_FADV_WILLNEED);
    }
  }

  int descriptor() const override { return fd_.get(); }

 private:
  /// An NFS server forgot the handle: by its name the file is found anew, if it is there.
  Status open_again(std::optional<Descriptor>& again) const {
    again.emplace(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (again->get() < 0) return errno_error("open", path_, errno);
    struct stat status{};
    if (::fstat(again->get(), &status) != 0) return errno_error("fstat", path_, errno);
    if (to_file_info(status).same_content_identity(identity_)) return {};
    return make_error(ErrorCode::kUnavailable, "read: " + path_ + ": was replaced meanwhile");
  }

  Descriptor fd_;
  std::string path_;
  FileInfo identity_;  ///< when it was opened
};

class RealWritableFile final : public WritableFile {
 public:
  RealWritableFile(Descriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  Status append(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const std::size_t piece = std::min<std::size_t>(bytes.size(), std::size_t{1} << 30U);
      const ssize_t n = ::write(fd_.get(), bytes.data(), piece);
      if (n < 0) {
        if (errno == EINTR) continue;
        return errno_error("write", path_, errno);
      }
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
    return {};
  }

  Result<std::uint64_t> append_copy_of(const ReadableFile& source, std::uint64_t offset,
                                       std::uint64_t size) override {
    constexpr auto kMaxOffset = static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
    std::uint64_t done = 0;
    if (source.descriptor() < 0 || offset > kMaxOffset || size > kMaxOffset - offset) return done;
    while (done < size) {
      auto from = static_cast<off_t>(offset + done);
      const auto piece =
          static_cast<std::size_t>(std::min<std::uint64_t>(size - done, std::uint64_t{1} << 30U));
      const ssize_t n = ::copy_file_range(source.descriptor(), &from, fd_.get(), nullptr, piece, 0);
      if (n < 0 && errno == EINTR) continue;
      // A copy that cannot be had (EXDEV, EINVAL, ENOSYS, EOPNOTSUPP, …) and a disk that fails look
      // alike from one kernel and file system to the next. Whoever reads and appends instead is
      // told which it was. Only what no other way helps against is an error here.
      if (n < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG || errno == EIO)) {
        return errno_error("copy", path_, errno);
      }
      if (n <= 0) break;
      done += static_cast<std::uint64_t>(n);
    }
    return done;
  }

  void start_writing_back() override {
    // Without the waiting flags it takes no error away from a later fsync.
    (void)::sync_file_range(fd_.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
  }

  Status sync() override {
    if (::fsync(fd_.get()) != 0) return errno_error("fsync", path_, errno);
    return {};
  }

  Status close() override {
    const int fd = fd_.release();
    if (fd < 0) return {};
    if (::close(fd) != 0 && errno != EINTR) return errno_error("close", path_, errno);
    return {};
  }

 private:
  Descriptor fd_;
  std::string path_;
};

Result<std::unique_ptr<WritableFile>> open_for_writing(const std::string& path, int flags,
                                                       std::uint32_t mode) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, mode);
  if (fd < 0) return errno_error("create", path, errno);
  return std::unique_ptr<WritableFile>(std::make_unique<RealWritableFile>(Descriptor(fd), path));
}

FileType entry_type(unsigned char d_type) {
  switch (d_type) {
    case DT_REG:
      return FileType::kRegular;
    case DT_DIR:
      return FileType::kDirectory;
    case DT_LNK:
      return FileType::kSymlink;
    default:
      return FileType::kOther;
  }
}

}  // namespace

Status ReadableFile::read_exactly_at(std::uint64_t offset, std::span<std::byte> out,
                                     std::string_view path) const {
  EVALCAR_ASSIGN_OR_RETURN(const std::size_t n, read_at(offset, out));
  if (n == out.size()) return {};
  return make_error(ErrorCode::kCorruption,
                    std::string(path) + ": ends at byte " + std::to_string(offset + n) +
                        ", expected " + std::to_string(out.size()) + " bytes at offset " +
                        std::to_string(offset) + " (truncated, or still being written)");
}

Status WritableFile::append(std::string_view text) {
  return append(std::as_bytes(std::span<const char>(text.data(), text.size())));
}

Result<std::unique_ptr<ReadableFile>> RealFileSystem::open_readable(const std::string& path) const {
  // O_NONBLOCK: opening a FIFO must not wait for a writer; it means nothing for a regular file.
  Descriptor fd(again_if_stale(
      [&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); }));
  if (fd.get() < 0) return errno_error("open", path, errno);
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) return errno_error("fstat", path, errno);
  if (!S_ISREG(status.st_mode)) {
    return make_error(ErrorCode::kInvalidArgument, "open: " + path + ": not a regular file");
  }
  return std::unique_ptr<ReadableFile>(
      std::make_unique<RealReadableFile>(std::move(fd), path, to_file_info(status)));
}

Result<std::unique_ptr<WritableFile>> RealFileSystem::create(const std::string& path,
                                                             std::uint32_t mode) {
  return open_for_writing(path, O_CREAT | O_EXCL, mode);
}

Result<std::unique_ptr<WritableFile>> RealFileSystem::open_appendable(const std::string& path,
                                                                      std::uint32_t mode) {
  return open_for_writing(path, O_CREAT | O_APPEND, mode);
}

Result<std::vector<DirectoryEntry>> RealFileSystem::list(const std::string& path,
                                                         std::size_t limit) const {
  DIR* const directory = again_if_stale([&] { return ::opendir(path.c_str()); });
  if (directory == nullptr) return errno_error("list", path, errno);
  const std::unique_ptr<DIR, int (*)(DIR*)> closer(directory, ::closedir);
  std::vector<DirectoryEntry> entries;
  while (true) {
    errno = 0;
    const dirent* const entry = ::readdir(directory);
    if (entry == nullptr) {
      if (errno != 0) return errno_error("list", path, errno);
      break;
    }
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (entries.size() == limit) {
      return make_error(ErrorCode::kUnavailable,
                        "list: " + path + ": more than " + std::to_string(limit) + " entries");
    }
    FileType type = entry_type(entry->d_type);
    if (entry->d_type == DT_UNKNOWN) {  // some network file systems do not tell
      const Result<FileInfo> told = info(join_path(path, name));
      if (!told.has_value()) continue;  // gone since
      type = told->type;
    }
    entries.push_back({std::string(name), type});
  }
  std::sort(entries.begin(), entries.end(),
            [](const DirectoryEntry& a, const DirectoryEntry& b) { return a.name < b.name; });
  return entries;
}

Result<FileInfo> RealFileSystem::info(const std::string& path) const {
  struct stat status{};
  if (again_if_stale([&] { return ::lstat(path.c_str(), &status); }) != 0) {
    return errno_error("stat", path, errno);
  }
  return to_file_info(status);
}

Result<FileInfo> RealFileSystem::info_followed(const std::string& path) const {
  struct stat status{};
  if (again_if_stale([&] { return ::stat(path.c_str(), &status); }) != 0) {
    return errno_error("stat", path, errno);
  }
  return to_file_info(status);
}

Result<FileInfo> RealFileSystem::info_now(const std::string& path) const {
  // Brings what the kernel remembers of it up to date; an error shows in the call that counts.
  struct statx ignored{};
  (void)::statx(AT_FDCWD, path.c_str(), AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &ignored);
  return info_followed(path);
}

Result<std::string> RealFileSystem::read_link(const std::string& path) const {
  std::string target(PATH_MAX, '\0');
  const ssize_t n = ::readlink(path.c_str(), target.data(), target.size());
  if (n < 0) return errno_error("readlink", path, errno);
  target.resize(static_cast<std::size_t>(n));
  return target;
}

Result<std::string> RealFileSystem::real_path(const std::string& path) const {
  const std::unique_ptr<char, void (*)(void*)> resolved(::realpath(path.c_str(), nullptr), ::free);
  if (resolved == nullptr) return errno_error("realpath", path, errno);
  return std::string(resolved.get());
}

Status RealFileSystem::make_directory(const std::string& path, std::uint32_t mode) {
  if (::mkdir(path.c_str(), mode) != 0) return errno_error("mkdir", path, errno);
  return {};
}

Status RealFileSystem::rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) return errno_error("rename to " + to, from, errno);
  return {};
}

Status RealFileSystem::remove_file(const std::string& path) {
  if (::unlink(path.c_str()) != 0) return errno_error("unlink", path, errno);
  return {};
}

Status RealFileSystem::remove_directory(const std::string& path) {
  if (::rmdir(path.c_str()) != 0) return errno_error("rmdir", path, errno);
  return {};
}

Status RealFileSystem::hard_link(const std::string& from, const std::string& to) {
  if (::link(from.c_str(), to.c_str()) == 0) return {};
  const int failed = errno;
  Error error = errno_error("link to " + to, from, failed);
  if (failed == EPERM || failed == EXDEV || failed == EMLINK || failed == EOPNOTSUPP ||
      failed == ENOSYS) {  // of FUSE
    error.retryable = false;
  }
  return error;
}

Status RealFileSystem::clone_file(const std::string& from, const std::string& to) {
  const Descriptor source(::open(from.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (source.get() < 0) return errno_error("open", from, errno);
  const Descriptor target(::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (target.get() < 0) return errno_error("create", to, errno);
  if (::ioctl(target.get(), FICLONE, source.get()) == 0) return {};
  const int failed = errno;
  (void)::unlink(to.c_str());
  Error error = errno_error("clone to " + to, from, failed);
  // ENOTTY: the kernel or the file system does not know the call; EINVAL: not of such files.
  if (failed == EOPNOTSUPP || failed == EXDEV || failed == EINVAL || failed == ENOTTY) {
    error.code = ErrorCode::kUnsupported;
    error.retryable = false;
  }
  return error;
}

Status RealFileSystem::symbolic_link(const std::string& target, const std::string& path) {
  if (::symlink(target.c_str(), path.c_str()) != 0) return errno_error("symlink", path, errno);
  return {};
}

Status RealFileSystem::set_mtime(const std::string& path, std::int64_t mtime_ns) {
  struct timespec times[2] = {};
  times[0].tv_nsec = UTIME_OMIT;
  times[1].tv_sec = mtime_ns / 1'000'000'000;
  times[1].tv_nsec = mtime_ns % 1'000'000'000;
  if (::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0) {
    return errno_error("utimensat", path, errno);
  }
  return {};
}

Status RealFileSystem::truncate(const std::string& path, std::uint64_t size_bytes) {
  if (::truncate(path.c_str(), static_cast<off_t>(size_bytes)) != 0)
    return errno_error("truncate", path, errno);
  return {};
}

Status RealFileSystem::sync_directory(const std::string& path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) return errno_error("open", path, errno);
  // Some FUSE and network file systems have no fsync of folders; there is nothing stronger to ask
  // them for.
  if (::fsync(fd.get()) != 0 && errno != EINVAL && errno != ENOSYS)
    return errno_error("fsync", path, errno);
  return {};
}

Result<std::uint64_t> RealFileSystem::free_bytes(const std::string& path) const {
  struct statvfs status{};
  if (::statvfs(path.c_str(), &status) != 0) return errno_error("statvfs", path, errno);
  const std::uint64_t free = std::uint64_t{status.f_bavail} * status.f_frsize;
  return std::min(free, quota_left(path).value_or(free));
}

Result<std::uint64_t> RealFileSystem::file_system_type(const std::string& path) const {
  struct statfs status{};
  if (::statfs(path.c_str(), &status) != 0) return errno_error("statfs", path, errno);
  return static_cast<std::uint64_t>(status.f_type);
}

}  // namespace evalcar
