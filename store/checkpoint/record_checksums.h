// Verifies the CRC-32 of a plan's records out of the very bytes that are read for the tensors, so
// that no file is read twice for it.
//
// Threads read a record in any order and in any cuts. Each read gives the CRC of a range; ranges
// that touch are combined, until one covers the record. What no read covered (padding behind a
// shard, a record of a tensor that nobody wanted) is read at the end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "store/base/file_system.h"
#include "store/base/result.h"
#include "store/checkpoint/plan.h"

namespace evalcar::checkpoint {

/// Thread-safe. Memory: a few words a record.
class RecordChecksums {
 public:
  /// `plan` must outlive it.
  explicit RecordChecksums(const Plan& plan);

  /// `file`, which is plan.files[index], in a form that tells this object what is read of it. The
  /// object must outlive it. A file without records is given back as it is.
  std::unique_ptr<ReadableFile> watch(std::size_t index, std::unique_ptr<ReadableFile> file);

  /// Bytes that verify() has to read: of the records that a tensor of the plan lies in, or that
  /// were read in part, what was not read yet.
  std::uint64_t unseen_bytes() const;

  /// Reads those bytes and compares the CRCs. `watched` are all files of the plan, from watch().
  /// kCorruption names file and offset. See PlanReader::verify_checksums.
  Status verify(const std::vector<std::unique_ptr<ReadableFile>>& watched, int threads,
                const std::function<void(std::uint64_t)>& on_progress, const std::stop_token& stop);

 private:
  class WatchedFile;
  class Verification;

  /// [begin, end) of a record's bytes, and their CRC-32.
  struct Range {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint32_t crc32 = 0;
  };
  struct Record {
    PlanRecord stated;
    bool planned = false;     // a tensor of the plan lies in it; constant
    std::vector<Range> seen;  // under mutex_; sorted, neither overlapping nor touching
  };

  void mark_planned(const TensorPlan& tensor);
  /// The first record of the file that ends behind `offset`; records_.size() if there is none.
  std::size_t first_behind(std::size_t file, std::uint64_t offset) const;
  void saw(std::size_t file, std::uint64_t offset, std::span<const std::byte> bytes);
  static void add(std::vector<Range>& seen, const Range& range);
  std::vector<Range> gaps(std::size_t record) const;
  Status compare(std::size_t record) const;

  const Plan& plan_;
  mutable std::mutex mutex_;
  std::vector<Record> records_;  // by file and offset; constant but for `seen`
};

}  // namespace evalcar::checkpoint
