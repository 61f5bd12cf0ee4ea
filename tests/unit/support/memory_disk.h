// What MemoryFileSystem keeps in memory: inodes with two contents and two lists of names (what a
// reader sees, and what is durable), and what shall go wrong. All but enter() and now_ns() is
// called with `mutex` held.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/unit/support/memory_file_system.h"

namespace evalcar::test {

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

/// Where a path leads.
struct Place {
  NodePtr parent;  // the folder that has, or would have, the last component
  std::string name;
  NodePtr node;  // null: does not exist
  std::string path;
};

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
  bool clones = false;

  std::vector<Call> calls;
  std::size_t fail_in = 0;
  int fail_errno = 0;
  std::string fail_operation;
  std::size_t fail_operation_in = 0;
  int fail_operation_errno = 0;
  std::size_t die_in = 0;
  bool dead = false;
  std::function<void(const Call&)> hook;

  /// Records a call; what it must fail with (an errno), or 0. `just_died` if this very call is the
  /// one that kills.
  int enter(const std::string& operation, const std::string& path, bool* just_died = nullptr);
  /// Walks a path, following links; an errno, or 0 with `place` (whose node may be null).
  int resolve(const std::string& path, bool follow_last, Place& place, int depth = 0) const;
  /// The same, ENOENT for what is not there.
  int existing(const std::string& path, bool follow_last, Place& place) const;
  /// Makes it and its parents, durably.
  NodePtr put(const std::string& path, FileType type);
  /// A new node that has no name yet.
  NodePtr make(FileType type, std::uint64_t device);
  static void sync_below(Node& node);
  /// What a power cut leaves.
  static void cut_below(Node& node, UnsyncedNames names);
  static void count_links(Node& node, std::map<Node*, std::uint64_t>& counts);
  bool is_read_only(const std::string& path) const;
  std::int64_t now_ns() const;
  void touch(Node& node) const { node.mtime_ns = node.ctime_ns = now_ns(); }
};

FileInfo info_of(const Node& node);

}  // namespace evalcar::test
