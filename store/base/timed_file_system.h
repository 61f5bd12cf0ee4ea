// A file system whose calls come back, even where the disk behind it does not.
//
// Calls on the trees that are named to it, where they lie on a network file system or FUSE, are
// made by one thread a tree (call_thread.h) and given up after a while: they fail with
// kUnavailable, and so do all others on that tree, at once, until it answers again. A call that was
// given up may still take effect; its result is dropped. Trees on a local disk, and all other
// paths, are asked directly and cost nothing.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "store/base/call_thread.h"
#include "store/base/file_system.h"
#include "store/base/guarded.h"

namespace evalcar {

/// Thread-safe.
class TimedFileSystem final : public FileSystem {
 public:
  /// `below` must outlive it, and calls that hang when it ends.
  explicit TimedFileSystem(FileSystem& below, CallThread::Patience patience = {});

  /// From now on calls on `tree` (an absolute path; it need not exist) and what is below it are
  /// bounded, if need be. Which file system that is, is asked now and whenever it is listed: mounts
  /// come and go. Naming a tree again does nothing.
  void guard(const std::string& tree);

  /// Where `tree` (a guarded one) is such a file system, files below it that are opened for reading
  /// are opened by a hard link in `folder` (in the tree, and itself left out), which goes when they
  /// are closed. A file that is held open by its own name keeps that name's folder from being
  /// deleted there: NFS and FUSE give it another name instead. Where no link can be made (no such
  /// folder yet, no permission) they are opened as they are.
  void read_through_links(const std::string& tree, const std::string& folder);

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
  Status perform(const std::string& path, std::function<Status()> call) const override;
  void perform_later(const std::string& path, std::function<void()> call) const override;
  Status answers(const std::string& path) const override;
  void leave_to_owner(const std::string& directory) override;
  bool is_left_to_owner(const std::string& directory) const override;

 private:
  struct Tree;
  std::shared_ptr<Tree> tree_of(const std::string& path) const;
  std::shared_ptr<CallThread> slow_thread_of(const std::string& path) const;
  void look_at_kind(Tree& tree) const;

  FileSystem& below_;
  CallThread::Patience patience_;
  Guarded<std::map<std::string, std::shared_ptr<Tree>>> trees_;
  Guarded<std::set<std::string>> of_others_;
};

}  // namespace evalcar
