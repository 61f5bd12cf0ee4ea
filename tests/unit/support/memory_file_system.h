// Files in memory with inodes, hard links, mtimes and a power switch.
//
// Every file has two contents (what a reader sees, what the disk would still have after a power
// cut) and every folder two lists of names. fsync copies one to the other; power_cut() drops the
// rest. This finds a missing fsync, a rename before its data, and a folder that was not synced.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/clock.h"
#include "store/base/file_system.h"
#include "store/base/guarded.h"

namespace evalcar::test {

/// One call that was made: `operation` is the method's name ("append", "sync" and "close" for open
/// files).
struct Call {
  std::string operation;
  std::string path;
  bool operator==(const Call&) const = default;
};

/// What a power cut leaves of names that were not synced. File contents that were not synced are
/// always gone.
enum class UnsyncedNames {
  kDropped,  ///< folders go back to their last sync: a new file without a folder sync is gone
  kKept,     ///< the journal had the names, but not the data: files are there, empty or old
};

/// Thread-safe. Paths are absolute, or relative to "/". The root exists.
class MemoryFileSystem final : public FileSystem {
 public:
  /// `clock` gives mtimes; it must outlive the files.
  explicit MemoryFileSystem(const Clock& clock);
  ~MemoryFileSystem() override;

  // Set-up and inspection: not recorded, never failing by injection.

  /// A durable file with durable parents; replaces the content (same inode) if it exists.
  void put_file(const std::string& path, std::string_view content);
  /// A durable folder with durable parents.
  void put_directory(const std::string& path);
  /// As if a file was last written then, by the disk's own clock; set_mtime() leaves its mark.
  void put_times(const std::string& path, std::int64_t written_ns);
  /// The content a reader sees; absent if it is not a file.
  std::optional<std::string> content(const std::string& path) const;
  bool exists(const std::string& path) const;
  /// All files and folders below `path`, relative to it, folders with a "/" at the end, sorted.
  std::vector<std::string> tree(const std::string& path = "/") const;
  /// Everything becomes durable, as after sync(1).
  void sync_all();
  void power_cut(UnsyncedNames names = UnsyncedNames::kDropped);
  /// Makes `path` (a folder) the root of another file system: links across fail with EXDEV.
  void mount(const std::string& path, std::uint64_t device, std::uint64_t type_magic);
  /// Its file systems can clone files, as Btrfs does; at first they cannot.
  void allow_clones();
  void set_free_bytes(std::uint64_t bytes);
  /// Everything at and below this path refuses changes with EROFS.
  void set_read_only(const std::string& path_prefix);

  // Calls and their failures. Calls are counted from 1 since the last reset_calls().

  std::vector<Call> calls() const;
  /// How many calls of this operation.
  std::size_t count(std::string_view operation) const;
  void reset_calls();
  /// The n-th call from now fails with this errno; 0 turns it off.
  void fail_call(std::size_t n, int errno_value);
  /// The n-th call of this operation from now fails.
  void fail_operation(const std::string& operation, int errno_value, std::size_t n = 1);
  /// The n-th call from now and all after it fail, as if the process were killed in it: a killed
  /// append has written the first half of its bytes. 0 turns it off.
  void die_at_call(std::size_t n);
  /// Called before each call is carried out, without the lock: a place for "meanwhile, the trainer
  /// …".
  void on_call(std::function<void(const Call&)> hook);

  // FileSystem
  Result<std::unique_ptr<ReadableFile>> open_readable(const std::string& path) const override;
  Result<std::unique_ptr<WritableFile>> create(const std::string& path,
                                               std::uint32_t mode) override;
  Result<std::unique_ptr<WritableFile>> open_appendable(const std::string& path,
                                                        std::uint32_t mode) override;
  Result<std::vector<DirectoryEntry>> list(const std::string& path,
                                           std::size_t limit) const override;
  Result<FileInfo> info(const std::string& path) const override;
  Result<FileInfo> info_followed(const std::string& path) const override;
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
  void leave_to_owner(const std::string& directory) override {
    of_others_.with([&directory](auto& all) { all.insert(directory); });
  }
  bool is_left_to_owner(const std::string& directory) const override {
    return of_others_.with([&directory](const auto& all) { return all.contains(directory); });
  }

  struct Disk;  ///< shared with open files

 private:
  std::shared_ptr<Disk> disk_;
  Guarded<std::set<std::string>> of_others_;
};

}  // namespace evalcar::test
