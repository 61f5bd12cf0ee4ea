// A file system that hands every call on to another one: a base for those that change a few.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "store/base/file_system.h"

namespace evalcar::test {

/// Thread-safe where the other one is, which must outlive it.
class ForwardingFileSystem : public FileSystem {
 public:
  explicit ForwardingFileSystem(FileSystem& below) : below_(below) {}

  Result<std::unique_ptr<ReadableFile>> open_readable(const std::string& path) const override {
    return below_.open_readable(path);
  }
  Result<std::unique_ptr<WritableFile>> create(const std::string& path,
                                               std::uint32_t mode) override {
    return below_.create(path, mode);
  }
  Result<std::unique_ptr<WritableFile>> open_appendable(const std::string& path,
                                                        std::uint32_t mode) override {
    return below_.open_appendable(path, mode);
  }
  Result<std::vector<DirectoryEntry>> list(const std::string& path,
                                           std::size_t limit) const override {
    return below_.list(path, limit);
  }
  Result<FileInfo> info(const std::string& path) const override { return below_.info(path); }
  Result<FileInfo> info_followed(const std::string& path) const override {
    return below_.info_followed(path);
  }
  Result<std::string> read_link(const std::string& path) const override {
    return below_.read_link(path);
  }
  Result<std::string> real_path(const std::string& path) const override {
    return below_.real_path(path);
  }
  Status make_directory(const std::string& path, std::uint32_t mode) override {
    return below_.make_directory(path, mode);
  }
  Status rename(const std::string& from, const std::string& to) override {
    return below_.rename(from, to);
  }
  Status remove_file(const std::string& path) override { return below_.remove_file(path); }
  Status remove_directory(const std::string& path) override {
    return below_.remove_directory(path);
  }
  Status hard_link(const std::string& from, const std::string& to) override {
    return below_.hard_link(from, to);
  }
  Status clone_file(const std::string& from, const std::string& to) override {
    return below_.clone_file(from, to);
  }
  Status symbolic_link(const std::string& target, const std::string& path) override {
    return below_.symbolic_link(target, path);
  }
  Status set_mtime(const std::string& path, std::int64_t mtime_ns) override {
    return below_.set_mtime(path, mtime_ns);
  }
  Status truncate(const std::string& path, std::uint64_t size_bytes) override {
    return below_.truncate(path, size_bytes);
  }
  Status sync_directory(const std::string& path) override { return below_.sync_directory(path); }
  Result<std::uint64_t> free_bytes(const std::string& path) const override {
    return below_.free_bytes(path);
  }
  Result<std::uint64_t> file_system_type(const std::string& path) const override {
    return below_.file_system_type(path);
  }

 protected:
  FileSystem& below() const { return below_; }

 private:
  FileSystem& below_;
};

}  // namespace evalcar::test
