#include "tests/unit/support/memory_disk.h"

#include <algorithm>
#include <cerrno>

namespace evalcar::test {
namespace {

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

int MemoryFileSystem::Disk::enter(const std::string& operation, const std::string& path,
                                  bool* just_died) {
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

int MemoryFileSystem::Disk::resolve(const std::string& path, bool follow_last, Place& place,
                                    int depth) const {
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

NodePtr MemoryFileSystem::Disk::put(const std::string& path, FileType type) {
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

NodePtr MemoryFileSystem::Disk::make(FileType type, std::uint64_t device) {
  auto node = std::make_shared<Node>();
  node->type = type;
  node->device = device;
  node->inode = next_inode++;
  node->mtime_ns = node->ctime_ns = now_ns();
  if (type == FileType::kDirectory) node->mode = 0755;
  return node;
}

void MemoryFileSystem::Disk::sync_below(Node& node) {
  node.durable_content = node.content;
  node.durable_names = node.names;
  for (auto& [name, child] : node.names) sync_below(*child);
}

void MemoryFileSystem::Disk::cut_below(Node& node, UnsyncedNames names) {
  if (node.type == FileType::kRegular) node.content = node.durable_content;
  if (names == UnsyncedNames::kDropped) {
    node.names = node.durable_names;
  } else {
    node.durable_names = node.names;
  }
  for (auto& [name, child] : node.names) cut_below(*child, names);
}

void MemoryFileSystem::Disk::count_links(Node& node, std::map<Node*, std::uint64_t>& counts) {
  for (auto& [name, child] : node.names) {
    ++counts[child.get()];
    count_links(*child, counts);
  }
}

int MemoryFileSystem::Disk::existing(const std::string& path, bool follow_last,
                                     Place& place) const {
  const int failed = resolve(path, follow_last, place);
  if (failed != 0) return failed;
  return place.node == nullptr ? ENOENT : 0;
}

bool MemoryFileSystem::Disk::is_read_only(const std::string& path) const {
  return std::any_of(read_only.begin(), read_only.end(),
                     [&](const std::string& prefix) { return path.starts_with(prefix); });
}

std::int64_t MemoryFileSystem::Disk::now_ns() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(clock.wall_now().time_since_epoch())
      .count();
}

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

}  // namespace evalcar::test
