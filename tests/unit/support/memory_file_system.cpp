#include "tests/unit/support/memory_file_system.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/unit/support/memory_disk.h"

namespace evalcar::test {
namespace {

using Disk = MemoryFileSystem::Disk;

class MemoryReadableFile final : public ReadableFile {
 public:
  MemoryReadableFile(std::shared_ptr<Disk> disk, NodePtr node, std::string path)
      : disk_(std::move(disk)), node_(std::move(node)), path_(std::move(path)) {}

  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (const int failed = disk_->enter("read_at", path_)) {
      return errno_error("read at offset " + std::to_string(offset), path_, failed);
    }
    const std::scoped_lock lock(disk_->mutex);
    if (offset >= node_->content.size()) return std::size_t{0};
    const std::size_t n = std::min(out.size(), node_->content.size() - offset);
    if (n != 0) std::memcpy(out.data(), node_->content.data() + offset, n);
    return n;
  }
  Result<FileInfo> info() const override {
    if (const int failed = disk_->enter("fstat", path_)) {
      return errno_error("fstat", path_, failed);
    }
    const std::scoped_lock lock(disk_->mutex);
    return info_of(*node_);
  }

 private:
  std::shared_ptr<Disk> disk_;
  NodePtr node_;
  std::string path_;
};

class MemoryWritableFile final : public WritableFile {
 public:
  MemoryWritableFile(std::shared_ptr<Disk> disk, NodePtr node, std::string path)
      : disk_(std::move(disk)), node_(std::move(node)), path_(std::move(path)) {}

  Status append(std::span<const std::byte> bytes) override {
    bool died = false;
    const int failed = disk_->enter("append", path_, &died);
    const std::scoped_lock lock(disk_->mutex);
    const std::size_t n = failed == 0 ? bytes.size() : died ? bytes.size() / 2 : 0;
    node_->content.append(reinterpret_cast<const char*>(bytes.data()), n);
    if (n != 0) disk_->touch(*node_);
    if (failed != 0) return errno_error("write", path_, failed);
    return {};
  }
  Status sync() override {
    if (const int failed = disk_->enter("sync", path_)) return errno_error("fsync", path_, failed);
    const std::scoped_lock lock(disk_->mutex);
    node_->durable_content = node_->content;
    return {};
  }
  Status close() override {
    if (closed_) return {};
    closed_ = true;
    if (const int failed = disk_->enter("close", path_)) return errno_error("close", path_, failed);
    return {};
  }

 private:
  std::shared_ptr<Disk> disk_;
  NodePtr node_;
  std::string path_;
  bool closed_ = false;
};

}  // namespace

Result<std::unique_ptr<ReadableFile>> MemoryFileSystem::open_readable(
    const std::string& path) const {
  if (const int failed = disk_->enter("open_readable", path)) {
    return errno_error("open", path, failed);
  }
  const std::scoped_lock lock(disk_->mutex);
  Place place;
  if (const int failed = disk_->existing(path, true, place)) {
    return errno_error("open", path, failed);
  }
  if (place.node->type != FileType::kRegular) {
    return make_error(ErrorCode::kInvalidArgument, "open: " + path + ": not a regular file");
  }
  return std::unique_ptr<ReadableFile>(
      std::make_unique<MemoryReadableFile>(disk_, place.node, path));
}

Result<std::unique_ptr<WritableFile>> MemoryFileSystem::create(const std::string& path,
                                                               std::uint32_t mode) {
  int failed = disk_->enter("create", path);
  const std::scoped_lock lock(disk_->mutex);
  Place place;
  if (failed == 0) failed = disk_->resolve(path, false, place);
  if (failed == 0 && place.node != nullptr) failed = EEXIST;
  if (failed == 0 && disk_->is_read_only(place.path)) failed = EROFS;
  if (failed != 0) return errno_error("create", path, failed);
  const NodePtr node = disk_->make(FileType::kRegular, place.parent->device);
  node->mode = mode;
  place.parent->names[place.name] = node;
  disk_->touch(*place.parent);
  disk_->touch(*place.parent);
  return std::unique_ptr<WritableFile>(std::make_unique<MemoryWritableFile>(disk_, node, path));
}

Result<std::unique_ptr<WritableFile>> MemoryFileSystem::open_appendable(const std::string& path,
                                                                        std::uint32_t mode) {
  int failed = disk_->enter("open_appendable", path);
  const std::scoped_lock lock(disk_->mutex);
  Place place;
  if (failed == 0) failed = disk_->resolve(path, true, place);
  if (failed == 0 && place.node != nullptr && place.node->type != FileType::kRegular) {
    failed = EISDIR;
  }
  if (failed == 0 && disk_->is_read_only(place.path)) failed = EROFS;
  if (failed != 0) return errno_error("create", path, failed);
  if (place.node == nullptr) {
    place.node = disk_->make(FileType::kRegular, place.parent->device);
    place.node->mode = mode;
    place.parent->names[place.name] = place.node;
    disk_->touch(*place.parent);
    disk_->touch(*place.parent);
  }
  return std::unique_ptr<WritableFile>(
      std::make_unique<MemoryWritableFile>(disk_, place.node, path));
}

Result<std::vector<DirectoryEntry>> MemoryFileSystem::list(const std::string& path,
                                                           std::size_t limit) const {
  int failed = disk_->enter("list", path);
  const std::scoped_lock lock(disk_->mutex);
  Place place;
  if (failed == 0) failed = disk_->existing(path, true, place);
  if (failed == 0 && place.node->type != FileType::kDirectory) failed = ENOTDIR;
  if (failed != 0) return errno_error("list", path, failed);
  if (place.node->names.size() > limit) {
    return make_error(ErrorCode::kUnavailable,
                      "list: " + path + ": more than " + std::to_string(limit) + " entries");
  }
  std::vector<DirectoryEntry> entries;
  for (const auto& [name, child] : place.node->names) entries.push_back({name, child->type});
  return entries;
}

Result<FileInfo> MemoryFileSystem::info(const std::string& path) const {
  int failed = disk_->enter("info", path);
  const std::scoped_lock lock(disk_->mutex);
  Place place;
  if (failed == 0) failed = disk_->existing(path, false, place);
  if (failed != 0) return errno_error("stat", path, failed);
  return info_of(*place.node);
}

Result<FileInfo> MemoryFileSystem::info_followed(const std::string& path) const {
  int failed = disk_->enter("info_followed", path);
  const std::scoped_lock lock(disk_->mutex);
  Place place;
  if (failed == 0) failed = disk_->existing(path, true, place);
  if (failed != 0) return errno_error("stat", path, failed);
  return info_of(*place.node);
}

Result<std::string> MemoryFileSystem::read_link(const std::string& path) const {
  int failed = disk_->enter("read_link", path);
  const std::scoped_lock lock(disk_->mutex);
  Place place;
  if (failed == 0) failed = disk_->existing(path, false, place);
  if (failed == 0 && place.node->type != FileType::kSymlink) failed = EINVAL;
  if (failed != 0) return errno_error("readlink", path, failed);
  return place.node->content;
}

Result<std::string> MemoryFileSystem::real_path(const std::string& path) const {
  int failed = disk_->enter("real_path", path);
  const std::scoped_lock lock(disk_->mutex);
  Place place;
  if (failed == 0) failed = disk_->existing(path, true, place);
  if (failed != 0) return errno_error("realpath", path, failed);
  return place.path.empty() ? std::string("/") : place.path;
}

Status MemoryFileSystem::make_directory(const std::string& path, std::uint32_t mode) {
  int failed = disk_->enter("make_directory", path);
  const std::scoped_lock lock(disk_->mutex);
  Place place;
  if (failed == 0) failed = disk_->resolve(path, false, place);
  if (failed == 0 && place.node != nullptr) failed = EEXIST;
  if (failed == 0 && disk_->is_read_only(place.path)) failed = EROFS;
  if (failed != 0) return errno_error("mkdir", path, failed);
  const NodePtr node = disk_->make(FileType::kDirectory, place.parent->device);
  node->mode = mode;
  place.parent->names[place.name] = node;
  disk_->touch(*place.parent);
  disk_->touch(*place.parent);
  return {};
}

Status MemoryFileSystem::rename(const std::string& from, const std::string& to) {
  int failed = disk_->enter("rename", from);
  const std::scoped_lock lock(disk_->mutex);
  Place source;
  Place target;
  if (failed == 0) failed = disk_->existing(from, false, source);
  if (failed == 0) failed = disk_->resolve(to, false, target);
  if (failed == 0 && source.parent->device != target.parent->device) failed = EXDEV;
  if (failed == 0 && disk_->is_read_only(source.path)) failed = EROFS;
  if (failed == 0 && target.node != nullptr && target.node->type == FileType::kDirectory) {
    if (source.node->type != FileType::kDirectory) failed = EISDIR;
    if (failed == 0 && !target.node->names.empty()) failed = ENOTEMPTY;
  }
  if (failed != 0) return errno_error("rename to " + to, from, failed);
  if (source.node == target.node) return {};
  if (target.node != nullptr) --target.node->links;
  source.parent->names.erase(source.name);
  disk_->touch(*source.parent);
  target.parent->names[target.name] = source.node;
  disk_->touch(*target.parent);
  disk_->touch(*source.parent);
  disk_->touch(*target.parent);
  source.node->ctime_ns = disk_->now_ns();
  return {};
}

Status MemoryFileSystem::remove_file(const std::string& path) {
  int failed = disk_->enter("remove_file", path);
  const std::scoped_lock lock(disk_->mutex);
  Place place;
  if (failed == 0) failed = disk_->existing(path, false, place);
  if (failed == 0 && place.node->type == FileType::kDirectory) failed = EISDIR;
  if (failed == 0 && disk_->is_read_only(place.path)) failed = EROFS;
  if (failed != 0) return errno_error("unlink", path, failed);
  --place.node->links;
  place.node->ctime_ns = disk_->now_ns();
  place.parent->names.erase(place.name);
  disk_->touch(*place.parent);
  disk_->touch(*place.parent);
  return {};
}

Status MemoryFileSystem::remove_directory(const std::string& path) {
  int failed = disk_->enter("remove_directory", path);
  const std::scoped_lock lock(disk_->mutex);
  Place place;
  if (failed == 0) failed = disk_->existing(path, false, place);
  if (failed == 0 && place.node->type != FileType::kDirectory) failed = ENOTDIR;
  if (failed == 0 && !place.node->names.empty()) failed = ENOTEMPTY;
  if (failed != 0) return errno_error("rmdir", path, failed);
  place.parent->names.erase(place.name);
  disk_->touch(*place.parent);
  disk_->touch(*place.parent);
  return {};
}

Status MemoryFileSystem::hard_link(const std::string& from, const std::string& to) {
  int failed = disk_->enter("hard_link", from);
  const std::scoped_lock lock(disk_->mutex);
  Place source;
  Place target;
  if (failed == 0) failed = disk_->existing(from, false, source);
  if (failed == 0) failed = disk_->resolve(to, false, target);
  if (failed == 0 && source.node->type == FileType::kDirectory) failed = EPERM;
  if (failed == 0 && target.node != nullptr) failed = EEXIST;
  if (failed == 0 && source.node->device != target.parent->device) failed = EXDEV;
  if (failed == 0 && disk_->is_read_only(target.path)) failed = EROFS;
  if (failed != 0) {
    Error error = errno_error("link to " + to, from, failed);
    if (failed == EPERM || failed == EXDEV) error.retryable = false;
    return error;
  }
  ++source.node->links;
  source.node->ctime_ns = disk_->now_ns();
  target.parent->names[target.name] = source.node;
  disk_->touch(*target.parent);
  disk_->touch(*target.parent);
  return {};
}

Status MemoryFileSystem::clone_file(const std::string& from, const std::string& to) {
  int failed = disk_->enter("clone_file", from);
  const std::scoped_lock lock(disk_->mutex);
  Place source;
  Place target;
  if (failed == 0) failed = disk_->existing(from, true, source);
  if (failed == 0) failed = disk_->resolve(to, false, target);
  if (failed == 0 && target.node != nullptr) failed = EEXIST;
  if (failed == 0 && disk_->is_read_only(target.path)) failed = EROFS;
  if (failed == 0 && source.node->device != target.parent->device) failed = EXDEV;
  if (failed == 0 && source.node->type != FileType::kRegular) failed = EINVAL;
  if (failed == 0 && !disk_->clones) failed = EOPNOTSUPP;
  if (failed != 0) {
    Error error = errno_error("clone to " + to, from, failed);
    const bool unsupported = failed == EOPNOTSUPP || failed == EXDEV || failed == EINVAL;
    if (unsupported) error = make_error(ErrorCode::kUnsupported, error.message);
    return error;
  }
  const NodePtr node = disk_->make(FileType::kRegular, target.parent->device);
  node->content = source.node->content;
  target.parent->names[target.name] = node;
  disk_->touch(*target.parent);
  disk_->touch(*target.parent);
  return {};
}

Status MemoryFileSystem::symbolic_link(const std::string& target, const std::string& path) {
  int failed = disk_->enter("symbolic_link", path);
  const std::scoped_lock lock(disk_->mutex);
  Place place;
  if (failed == 0) failed = disk_->resolve(path, false, place);
  if (failed == 0 && place.node != nullptr) failed = EEXIST;
  if (failed == 0 && disk_->is_read_only(place.path)) failed = EROFS;
  if (failed != 0) return errno_error("symlink", path, failed);
  const NodePtr node = disk_->make(FileType::kSymlink, place.parent->device);
  node->content = target;
  place.parent->names[place.name] = node;
  disk_->touch(*place.parent);
  disk_->touch(*place.parent);
  return {};
}

Status MemoryFileSystem::set_mtime(const std::string& path, std::int64_t mtime_ns) {
  int failed = disk_->enter("set_mtime", path);
  const std::scoped_lock lock(disk_->mutex);
  Place place;
  if (failed == 0) failed = disk_->existing(path, false, place);
  if (failed != 0) return errno_error("utimensat", path, failed);
  place.node->mtime_ns = mtime_ns;
  place.node->ctime_ns = disk_->now_ns();
  return {};
}

void MemoryFileSystem::put_times(const std::string& path, std::int64_t written_ns) {
  const std::scoped_lock lock(disk_->mutex);
  Place place;
  if (disk_->existing(path, false, place) != 0) return;
  place.node->mtime_ns = written_ns;
  place.node->ctime_ns = written_ns;
}

Status MemoryFileSystem::truncate(const std::string& path, std::uint64_t size_bytes) {
  int failed = disk_->enter("truncate", path);
  const std::scoped_lock lock(disk_->mutex);
  Place place;
  if (failed == 0) failed = disk_->existing(path, true, place);
  if (failed == 0 && place.node->type != FileType::kRegular) failed = EISDIR;
  if (failed == 0 && disk_->is_read_only(place.path)) failed = EROFS;
  if (failed != 0) return errno_error("truncate", path, failed);
  place.node->content.resize(size_bytes);
  disk_->touch(*place.node);
  return {};
}

Status MemoryFileSystem::sync_directory(const std::string& path) {
  int failed = disk_->enter("sync_directory", path);
  const std::scoped_lock lock(disk_->mutex);
  Place place;
  if (failed == 0) failed = disk_->existing(path, true, place);
  if (failed == 0 && place.node->type != FileType::kDirectory) failed = ENOTDIR;
  if (failed != 0) return errno_error("fsync", path, failed);
  place.node->durable_names = place.node->names;
  return {};
}

Result<std::uint64_t> MemoryFileSystem::free_bytes(const std::string& path) const {
  int failed = disk_->enter("free_bytes", path);
  const std::scoped_lock lock(disk_->mutex);
  Place place;
  if (failed == 0) failed = disk_->existing(path, true, place);
  if (failed != 0) return errno_error("statvfs", path, failed);
  return disk_->free;
}

Result<std::uint64_t> MemoryFileSystem::file_system_type(const std::string& path) const {
  int failed = disk_->enter("file_system_type", path);
  const std::scoped_lock lock(disk_->mutex);
  Place place;
  if (failed == 0) failed = disk_->existing(path, true, place);
  if (failed != 0) return errno_error("statfs", path, failed);
  return disk_->types[place.node->device];
}

}  // namespace evalcar::test
