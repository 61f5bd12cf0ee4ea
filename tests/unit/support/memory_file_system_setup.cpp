// The part of MemoryFileSystem that tests use to prepare, break and look at it.
#include <algorithm>

#include "tests/unit/support/memory_disk.h"

namespace evalcar::test {

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

void MemoryFileSystem::allow_clones() {
  const std::scoped_lock lock(disk_->mutex);
  disk_->clones = true;
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

}  // namespace evalcar::test
