// A file system that counts the bytes that go through it to another one.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "store/base/file_system.h"
#include "tests/unit/support/forwarding_file_system.h"

namespace evalcar::test {

/// Thread-safe where the other one is, which must outlive it.
class CountingFileSystem final : public ForwardingFileSystem {
 public:
  explicit CountingFileSystem(FileSystem& below) : ForwardingFileSystem(below) {}

  std::uint64_t bytes_read() const { return *read_; }
  void reset() { *read_ = 0; }

  Result<std::unique_ptr<ReadableFile>> open_readable(const std::string& path) const override {
    EVALCAR_ASSIGN_OR_RETURN(auto file, below().open_readable(path));
    return std::unique_ptr<ReadableFile>(std::make_unique<File>(std::move(file), read_));
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

  Counter read_ = std::make_shared<std::atomic<std::uint64_t>>(0);
};

}  // namespace evalcar::test
