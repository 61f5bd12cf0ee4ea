#include "tests/unit/support/memory_file_system.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace evalcar::test {
namespace {

struct Node;
using NodePtr = std::shared_ptr<Node>;
using Names = std::map<std::string, NodePtr>;

struct Node {
  FileType type = FileType::kRegular;
  std::uint64_t device = 1;
  std::uint64_t inode = 0;
  std::uint64_t links = 1;
  std::uint32_t mode = 0644;
  std::int64_t mtime_ns = 0;
  std::int64_t ctime_ns = 0;
  std::string content;  // of a file; the target of a link
  std::string durable_content;
  Names names;  // of a folder
  Names durable_names;
};

struct Place {
  NodePtr parent;  // the folder that has, or would have, the last component
  std::string name;
  NodePtr node;  // null: does not exist
  std::string path;
};

std::vector<std::string> components(std::string_view path) {
  std::vector<std::string> parts;
  while (!path.empty()) {
    const std::size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (!part.empty() && part != ".") parts.emplace_back(part);
    if (slash == std::string_view::npos) break;
    path.remove_prefix(slash + 1);
  }
  return parts;
}

}  // namespace

struct MemoryFileSystem::Disk {
  explicit Disk(const Clock& the_clock) : clock(the_clock) {
    root = make(FileType::kDirectory, 1);
    types[1] = 0xEF53;  // ext4
  }

  mutable std::mutex mutex;
  const Clock& clock;
  NodePtr root;
  std::uint64_t next_inode = 100;
  std::uint64_t free = std::uint64_t{1} << 40U;
  std::map<std::uint64_t, std::uint64_t> types;
  std::vector<std::string> read_only;

  std::vector<Call> calls;
  std::size_t fail_in = 0;
  int fail_errno = 0;
  std::string fail_operation;
  std::size_t fail_operation_in = 0;
  int fail_operation_errno = 0;
  std::size_t die_in = 0;
  bool dead = false;
  std::function<void(const Call&)> hook;

  std::int64_t now_ns() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(clock.wall_now().time_since_epoch())
        .count();
  }
  NodePtr make(FileType type, std::uint64_t device) {
    auto node = std::make_shared<Node>();
    node->type = type;
    node->device = device;
    node->inode = next_inode++;
    node->mtime_ns = node->ctime_ns = now_ns();
    if (type == FileType::kDirectory) node->mode = 0755;
    return node;
  }

  /// Records a call; what it must fail with, or 0. `just_died` if this very call is the one that
  /// kills.
  int enter(const std::string& operation, const std::string& path, bool* just_died = nullptr) {
    std::function<void(const Call&)> run;
    {
      const std::scoped_lock lock(mutex);
      run = hook;
    }
    if (run) run({operation, path});
    const std::scoped_lock lock(mutex);
    if (dead) return EIO;
    calls.push_back({operation, path});
    if (die_in != 0 && --die_in == 0) {
      dead = true;
      if (just_died != nullptr) *just_died = true;
      return EIO;
    }
    if (fail_in != 0 && --fail_in == 0) return fail_errno;
    if (fail_operation_in != 0 && operation == fail_operation && --fail_operation_in == 0) {
      return fail_operation_errno;
    }
    return 0;
  }

  int resolve(const std::string& path, bool follow_last, Place& place, int depth = 0) const {
    if (depth > 40) return ELOOP;
    std::vector<NodePtr> stack{root};
    std::vector<std::string> done;
    const std::vector<std::string> parts = components(path);
    if (parts.empty()) {
      place = {root, "", root, "/"};
      return 0;
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const bool last = i + 1 == parts.size();
      const NodePtr folder = stack.back();
      if (folder->type != FileType::kDirectory) return ENOTDIR;
      std::string prefix;
      for (const std::string& part : done) prefix += "/" + part;
      if (parts[i] == "..") {
        if (stack.size() > 1) {
          stack.pop_back();
          done.pop_back();
        }
        if (last) place = {stack.back(), "", stack.back(), prefix};
        continue;
      }
      const auto found = folder->names.find(parts[i]);
      const NodePtr node = found == folder->names.end() ? nullptr : found->second;
      if (node != nullptr && node->type == FileType::kSymlink && (!last || follow_last)) {
        std::string rest =
            node->content.starts_with("/") ? node->content : prefix + "/" + node->content;
        for (std::size_t j = i + 1; j < parts.size(); ++j) rest += "/" + parts[j];
        return resolve(rest, follow_last, place, depth + 1);
      }
      if (last) {
        place = {folder, parts[i], node, prefix + "/" + parts[i]};
        return 0;
      }
      if (node == nullptr) return ENOENT;
      stack.push_back(node);
      done.push_back(parts[i]);
    }
    return 0;
  }

  int existing(const std::string& path, bool follow_last, Place& place) const {
    const int failed = resolve(path, follow_last, place);
    if (failed != 0) return failed;
    return place.node == nullptr ? ENOENT : 0;
  }

  bool is_read_only(const std::string& path) const {
    return std::any_of(read_only.begin(), read_only.end(),
                       [&](const std::string& prefix) { return path.starts_with(prefix); });
  }

  void touch(Node& node) const { node.mtime_ns = node.ctime_ns = now_ns(); }

  NodePtr put(const std::string& path, FileType type) {
    NodePtr folder = root;
    const std::vector<std::string> parts = components(path);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      NodePtr& slot = folder->names[parts[i]];
      if (slot == nullptr) {
        slot = make(i + 1 == parts.size() ? type : FileType::kDirectory, folder->device);
        touch(*folder);
      }
      folder->durable_names[parts[i]] = slot;
      folder = slot;
    }
    return folder;
  }

  static void sync_below(Node& node) {
    node.durable_content = node.content;
    node.durable_names = node.names;
    for (auto& [name, child] : node.names) sync_below(*child);
  }
  static void cut_below(Node& node, UnsyncedNames names) {
    if (node.type == FileType::kRegular) node.content = node.durable_content;
    if (names == UnsyncedNames::kDropped) {
      node.names = node.durable_names;
    } else {
      node.durable_names = node.names;
    }
    for (auto& [name, child] : node.names) cut_below(*child, names);
  }
  static void count_links(Node& node, std::map<Node*, std::uint64_t>& counts) {
    for (auto& [name, child] : node.names) {
      ++counts[child.get()];
      count_links(*child, counts);
    }
  }
};

namespace {

using Disk = MemoryFileSystem::Disk;

FileInfo info_of(const Node& node) {
  FileInfo info;
  info.type = node.type;
  info.device = node.device;
  info.inode = node.inode;
  info.size_bytes = node.type == FileType::kDirectory ? 4096 : node.content.size();
  info.link_count = node.links;
  info.mode = node.mode;
  info.mtime_ns = node.mtime_ns;
  info.ctime_ns = node.ctime_ns;
  return info;
}

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

MemoryFileSystem::MemoryFileSystem(const Clock& clock) : disk_(std::make_shared<Disk>(clock)) {}
MemoryFileSystem::~MemoryFileSystem() = default;

void MemoryFileSystem::put_file(const std::string& path, std::string_view content) {
  const std::scoped_lock lock(disk_->mutex);
  const NodePtr node = disk_->put(path, FileType::kRegular);
  node->content = node->durable_content = content;
  disk_->touch(*node);
}

void MemoryFileSystem::put_directory(const std::string& path) {
  const std::scoped_lock lock(disk_->mutex);
  disk_->put(path, FileType::kDirectory);
}

std::optional<std::string> MemoryFileSystem::content(const std::string& path) const {
  const std::scoped_lock lock(disk_->mutex);
  Place place;
  if (disk_->existing(path, true, place) != 0) return std::nullopt;
  if (place.node->type != FileType::kRegular) return std::nullopt;
  return place.node->content;
}

bool MemoryFileSystem::exists(const std::string& path) const {
  const std::scoped_lock lock(disk_->mutex);
  Place place;
  return disk_->existing(path, false, place) == 0;
}

std::vector<std::string> MemoryFileSystem::tree(const std::string& path) const {
  const std::scoped_lock lock(disk_->mutex);
  std::vector<std::string> found;
  Place place;
  if (disk_->existing(path, true, place) != 0) return found;
  const std::function<void(const Node&, const std::string&)> walk = [&](const Node& node,
                                                                        const std::string& prefix) {
    for (const auto& [name, child] : node.names) {
      const bool folder = child->type == FileType::kDirectory;
      found.push_back(prefix + name + (folder ? "/" : ""));
      if (folder) walk(*child, prefix + name + "/");
    }
  };
  walk(*place.node, "");
  std::sort(found.begin(), found.end());
  return found;
}

void MemoryFileSystem::sync_all() {
  const std::scoped_lock lock(disk_->mutex);
  Disk::sync_below(*disk_->root);
}

void MemoryFileSystem::power_cut(UnsyncedNames names) {
  const std::scoped_lock lock(disk_->mutex);
  Disk::cut_below(*disk_->root, names);
  std::map<Node*, std::uint64_t> counts;
  Disk::count_links(*disk_->root, counts);
  for (const auto& [node, links] : counts) node->links = links;
  disk_->dead = false;
  disk_->die_in = disk_->fail_in = disk_->fail_operation_in = 0;
}

void MemoryFileSystem::mount(const std::string& path, std::uint64_t device,
                             std::uint64_t type_magic) {
  const std::scoped_lock lock(disk_->mutex);
  disk_->put(path, FileType::kDirectory)->device = device;
  disk_->types[device] = type_magic;
}

void MemoryFileSystem::set_free_bytes(std::uint64_t bytes) {
  const std::scoped_lock lock(disk_->mutex);
  disk_->free = bytes;
}

void MemoryFileSystem::set_read_only(const std::string& path_prefix) {
  const std::scoped_lock lock(disk_->mutex);
  disk_->read_only.push_back(path_prefix);
}

std::vector<Call> MemoryFileSystem::calls() const {
  const std::scoped_lock lock(disk_->mutex);
  return disk_->calls;
}

std::size_t MemoryFileSystem::count(std::string_view operation) const {
  const std::scoped_lock lock(disk_->mutex);
  return static_cast<std::size_t>(
      std::count_if(disk_->calls.begin(), disk_->calls.end(),
                    [&](const Call& call) { return call.operation == operation; }));
}

void MemoryFileSystem::reset_calls() {
  const std::scoped_lock lock(disk_->mutex);
  disk_->calls.clear();
}

void MemoryFileSystem::fail_call(std::size_t n, int errno_value) {
  const std::scoped_lock lock(disk_->mutex);
  disk_->fail_in = n;
  disk_->fail_errno = errno_value;
}

void MemoryFileSystem::fail_operation(const std::string& operation, int errno_value,
                                      std::size_t n) {
  const std::scoped_lock lock(disk_->mutex);
  disk_->fail_operation = operation;
  disk_->fail_operation_errno = errno_value;
  disk_->fail_operation_in = n;
}

void MemoryFileSystem::die_at_call(std::size_t n) {
  const std::scoped_lock lock(disk_->mutex);
  disk_->die_in = n;
  disk_->dead = false;
}

void MemoryFileSystem::on_call(std::function<void(const Call&)> hook) {
  const std::scoped_lock lock(disk_->mutex);
  disk_->hook = std::move(hook);
}

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
  target.parent->names[target.name] = source.node;
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
  if (failed != 0) return errno_error("link to " + to, from, failed);
  ++source.node->links;
  source.node->ctime_ns = disk_->now_ns();
  target.parent->names[target.name] = source.node;
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
