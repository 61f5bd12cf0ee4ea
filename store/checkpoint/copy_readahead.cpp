#include "store/checkpoint/copy_readahead.h"

#include <algorithm>
#include <utility>

#include "store/base/file_system_kind.h"

namespace evalcar::checkpoint {
namespace {

/// Enough for the disk's queue while a piece is copied, and little of anybody's page cache.
constexpr std::uint64_t kAheadBytes = std::uint64_t{32} << 20U;

}  // namespace

CopyReadahead::CopyReadahead(std::vector<CopyRange> ranges, FileOf file)
    : ranges_(std::move(ranges)), file_(std::move(file)) {}

void CopyReadahead::before_copying(std::uint64_t bytes) {
  begun_ += bytes;
  while (next_ < ranges_.size() && asked_ < begun_ + kAheadBytes) {
    const CopyRange& range = ranges_[next_];
    const std::uint64_t size = std::min(range.bytes - in_next_, begun_ + kAheadBytes - asked_);
    file_(range.file).will_read(range.offset + in_next_, size);
    asked_ += size;
    in_next_ += size;
    if (in_next_ == range.bytes) {
      ++next_;
      in_next_ = 0;
    }
  }
}

bool copies_by_reading(std::uint64_t file_system_type) {
  const std::string name = file_system_kind(file_system_type).name;
  return name == "ext4" || name == "F2FS" || name == "JFS" || name == "ReiserFS";
}

}  // namespace evalcar::checkpoint
