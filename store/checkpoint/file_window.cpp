#include "store/checkpoint/file_window.h"

#include <algorithm>
#include <cstring>

namespace evalcar::checkpoint {
namespace {

/// torch.save of one tensor puts about 1 KB before the elements and about 1 KB behind them.
constexpr std::uint64_t kEdgeBytes = 2048;

}  // namespace

Result<FileWindow> FileWindow::open(const ReadableFile& file, std::uint64_t offset,
                                    std::uint64_t size, const std::string& path) {
  FileWindow window(file, offset, size);
  if (size <= 2 * kEdgeBytes) {
    window.head_.resize(static_cast<std::size_t>(size));
    EVALCAR_RETURN_IF_ERROR(file.read_exactly_at(offset, window.head_, path));
    return window;
  }
  window.head_.resize(kEdgeBytes);
  window.tail_.resize(kEdgeBytes);
  EVALCAR_RETURN_IF_ERROR(file.read_exactly_at(offset, window.head_, path));
  EVALCAR_RETURN_IF_ERROR(file.read_exactly_at(offset + size - kEdgeBytes, window.tail_, path));
  return window;
}

Result<std::size_t> FileWindow::read_at(std::uint64_t offset, std::span<std::byte> out) const {
  if (offset >= size_ || out.empty()) return std::size_t{0};
  out = out.first(static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), size_ - offset)));
  const std::uint64_t end = offset + out.size();
  if (end <= head_.size()) {
    std::memcpy(out.data(), head_.data() + offset, out.size());
    return out.size();
  }
  const std::uint64_t tail_begin = size_ - tail_.size();
  if (offset >= tail_begin) {
    std::memcpy(out.data(), tail_.data() + (offset - tail_begin), out.size());
    return out.size();
  }
  return file_->read_at(offset_ + offset, out);
}

Result<FileInfo> FileWindow::info() const {
  EVALCAR_ASSIGN_OR_RETURN(FileInfo info, file_->info());
  info.size_bytes = size_;
  return info;
}

}  // namespace evalcar::checkpoint
