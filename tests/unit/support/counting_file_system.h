// A file system that counts the bytes that go through it to another one.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "store/base/file_system.h"

namespace evalcar::test {

/// Thread-safe where the other one is, which must outlive it.
class CountingFileSystem final : public FileSystem {
 public:
  explicit CountingFileSystem(FileSystem& below) : below_(below) {}

  std::uint64_t bytes_read() const { return *read_; }
  void reset() { *read_ = 0; }

  Result<std::unique_ptr<ReadableFile>> open_readable(const std::string& path) const override {
    EVALCAR_ASSIGN_OR_RETURN(auto file, below_.open_readable(path));
    return std::unique_ptr<ReadableFile>(std::make_unique<File>(std::move(file), read_));
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

 private:
  using Counter = std::shared_ptr<std::atomic<std::uint64_t>>;

  class File final : public ReadableFile {
   public:
    File(std::unique_ptr<ReadableFile> below, Counter read)
        : below_(std::move(below)), read_(std::move(read)) {}
    Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
      EVALCAR_ASSIGN_OR_RETURN(const std::size_t n, below_->read_at(offset, out));
      *read_ += n;
      return n;
    }
    Result<FileInfo> info() const override { return below_->info(); }

   private:
    std::unique_ptr<ReadableFile> below_;
    Counter read_;
  };

  FileSystem& below_;
  Counter read_ = std::make_shared<std::atomic<std::uint64_t>>(0);
};

}  // namespace evalcar::test
