// A part of a file as a file of its own: an item of a `.distcp` is a whole ZIP somewhere in it.
#pragma once

#include <cstdint>
#include <vector>

#include "store/base/file_system.h"
#include "store/base/result.h"

namespace evalcar::checkpoint {

/// Bytes [offset, offset + size) of `file`, which must outlive it. What lies near either end, where
/// a ZIP has its headers and its directory, is read when it is opened, in one or two reads: a
/// checkpoint of many ranks has hundreds of thousands of items. Thread-safe.
class FileWindow final : public ReadableFile {
 public:
  /// kCorruption as read_exactly_at where the file ends before the window does.
  static Result<FileWindow> open(const ReadableFile& file, std::uint64_t offset, std::uint64_t size,
                                 const std::string& path);

  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> out) const override;
  /// The file's own, with the size of the window.
  Result<FileInfo> info() const override;

 private:
  FileWindow(const ReadableFile& file, std::uint64_t offset, std::uint64_t size)
      : file_(&file), offset_(offset), size_(size) {}

  const ReadableFile* file_;
  std::uint64_t offset_;
  std::uint64_t size_;
  std::vector<std::byte> head_;  // from 0
  std::vector<std::byte> tail_;  // up to size_
};

}  // namespace evalcar::checkpoint
