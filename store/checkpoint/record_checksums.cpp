#include "store/checkpoint/record_checksums.h"

#include <algorithm>
#include <atomic>
#include <tuple>

#include "store/base/helper_threads.h"
#include "store/checkpoint/crc32.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20U;

}  // namespace

class RecordChecksums::WatchedFile final : public ReadableFile {
 public:
  WatchedFile(RecordChecksums& checksums, std::size_t index, std::unique_ptr<ReadableFile> file)
      : checksums_(checksums), index_(index), file_(std::move(file)) {}

  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    EVALCAR_ASSIGN_OR_RETURN(const std::size_t n, file_->read_at(offset, out));
    checksums_.saw(index_, offset, out.first(n));
    return n;
  }
  Result<FileInfo> info() const override { return file_->info(); }
  void will_read(std::uint64_t offset, std::uint64_t size) const override {
    file_->will_read(offset, size);
  }

 private:
  RecordChecksums& checksums_;
  std::size_t index_;
  std::unique_ptr<ReadableFile> file_;
};

RecordChecksums::RecordChecksums(const Plan& plan) : plan_(plan) {
  for (const PlanRecord& record : plan.records) records_.push_back({record, false, {}});
  std::sort(records_.begin(), records_.end(), [](const Record& a, const Record& b) {
    return std::tie(a.stated.file, a.stated.offset) < std::tie(b.stated.file, b.stated.offset);
  });
  for (const TensorPlan& tensor : plan.tensors) mark_planned(tensor);
}

/// With what it is computed from.
void RecordChecksums::mark_planned(const TensorPlan& tensor) {
  // A piece begins in the record that its tensor lies in.
  for (const Piece& piece : tensor.pieces) {
    const std::size_t i = first_behind(piece.file, piece.file_offset);
    if (i < records_.size() && records_[i].stated.file == piece.file &&
        records_[i].stated.offset <= piece.file_offset) {
      records_[i].planned = true;
    }
  }
  for (const LowRankUpdate* update = tensor.update.get(); update != nullptr;
       update = update->before.get()) {
    mark_planned(update->a);
    mark_planned(update->b);
  }
  if (tensor.mean_of == nullptr) return;
  for (const TensorPlan& member : *tensor.mean_of) mark_planned(member);
}

std::unique_ptr<ReadableFile> RecordChecksums::watch(std::size_t index,
                                                     std::unique_ptr<ReadableFile> file) {
  const bool has_records = std::any_of(records_.begin(), records_.end(), [&](const Record& record) {
    return record.stated.file == index;
  });
  if (!has_records) return file;
  return std::make_unique<WatchedFile>(*this, index, std::move(file));
}

std::size_t RecordChecksums::first_behind(std::size_t file, std::uint64_t offset) const {
  const auto found =
      std::partition_point(records_.begin(), records_.end(), [&](const Record& record) {
        return std::pair(record.stated.file, record.stated.offset + record.stated.size) <=
               std::pair(file, offset);
      });
  return static_cast<std::size_t>(found - records_.begin());
}

void RecordChecksums::saw(std::size_t file, std::uint64_t offset,
                          std::span<const std::byte> bytes) {
  const std::uint64_t end = offset + bytes.size();
  for (std::size_t i = first_behind(file, offset); i < records_.size(); ++i) {
    const PlanRecord& stated = records_[i].stated;
    if (stated.file != file || stated.offset >= end) return;
    const std::uint64_t from = std::max(offset, stated.offset);
    const std::uint64_t to = std::min(end, stated.offset + stated.size);
    if (from >= to) continue;  // an empty record
    const Range range{from - stated.offset, to - stated.offset,
                      crc32(bytes.subspan(from - offset, to - from))};
    const std::scoped_lock lock(mutex_);
    add(records_[i].seen, range);
  }
}

/// A range that was seen already, as of tied tensors, counts the first time only. One that was seen
/// in part cannot be used: the rest of it stays a gap.
void RecordChecksums::add(std::vector<Range>& seen, const Range& range) {
  auto next = std::partition_point(seen.begin(), seen.end(),
                                   [&](const Range& known) { return known.end <= range.begin; });
  if (next != seen.end() && next->begin < range.end) return;
  const auto append = [](Range& to, const Range& more) {
    to.crc32 = combine_crc32(to.crc32, more.crc32, more.end - more.begin);
    to.end = more.end;
  };
  if (next != seen.begin() && std::prev(next)->end == range.begin) {
    append(*std::prev(next), range);
  } else {
    next = std::next(seen.insert(next, range));
  }
  if (next != seen.end() && std::prev(next)->end == next->begin) {
    append(*std::prev(next), *next);
    seen.erase(next);
  }
}

std::vector<RecordChecksums::Range> RecordChecksums::gaps(std::size_t record) const {
  std::vector<Range> gaps;
  const std::scoped_lock lock(mutex_);
  const Record& each = records_[record];
  if (!each.planned && each.seen.empty()) return gaps;
  std::uint64_t at = 0;
  for (const Range& range : each.seen) {
    if (range.begin > at) gaps.push_back({at, range.begin, 0});
    at = range.end;
  }
  if (at < each.stated.size) gaps.push_back({at, each.stated.size, 0});
  return gaps;
}

std::uint64_t RecordChecksums::unseen_bytes() const {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < records_.size(); ++i) {
    for (const Range& gap : gaps(i)) bytes += gap.end - gap.begin;
  }
  return bytes;
}

Status RecordChecksums::compare(std::size_t record) const {
  const std::scoped_lock lock(mutex_);
  const auto& [stated, planned, seen] = records_[record];
  if (!planned && seen.empty()) return {};
  const std::uint32_t crc = seen.empty() ? 0 : seen.front().crc32;  // empty: a record of no bytes
  if (seen.size() <= 1 && crc == stated.crc32) return {};
  return make_error(ErrorCode::kCorruption,
                    plan_.files[stated.file].path + ": the " + std::to_string(stated.size) +
                        " bytes at " + std::to_string(stated.offset) +
                        " do not match the CRC-32 that the file states (lost blocks?)");
}

/// What the verifying threads share: the next record, the progress, the first error.
class RecordChecksums::Verification {
 public:
  Verification(const RecordChecksums& checksums,
               const std::vector<std::unique_ptr<ReadableFile>>& watched,
               const std::stop_token& stop)
      : checksums_(checksums), watched_(watched), stop_(stop) {}

  /// `on_block(bytes_done)` may be empty.
  void work(const std::function<void(std::uint64_t)>& on_block) {
    std::vector<std::byte> buffer;
    for (std::size_t i = next_++; i < checksums_.records_.size() && !ended_; i = next_++) {
      Status verified = verify(i, on_block, buffer);
      if (verified.has_value()) continue;
      const std::scoped_lock lock(mutex_);
      if (!ended_.exchange(true)) error_ = std::move(verified).error();
    }
  }

  Status take() {
    if (error_) return *std::move(error_);
    return {};
  }

 private:
  Status verify(std::size_t record, const std::function<void(std::uint64_t)>& on_block,
                std::vector<std::byte>& buffer) {
    const PlanRecord& stated = checksums_.records_[record].stated;
    for (const Range& gap : checksums_.gaps(record)) {
      for (std::uint64_t at = gap.begin; at < gap.end;) {
        if (stop_.stop_requested()) {
          return make_error(ErrorCode::kCancelled, "stopped while verifying checksums");
        }
        if (ended_) return {};  // the error of another thread is told
        buffer.resize(static_cast<std::size_t>(std::min(kBlockBytes, gap.end - at)));
        // The file tells the object what was read, which fills the gap.
        EVALCAR_RETURN_IF_ERROR(watched_[stated.file]->read_exactly_at(
            stated.offset + at, buffer, checksums_.plan_.files[stated.file].path));
        at += buffer.size();
        const std::uint64_t all = done_bytes_ += buffer.size();
        if (on_block) on_block(all);
      }
    }
    return checksums_.compare(record);
  }

  const RecordChecksums& checksums_;
  const std::vector<std::unique_ptr<ReadableFile>>& watched_;
  const std::stop_token& stop_;
  std::atomic<std::size_t> next_{0};
  std::atomic<std::uint64_t> done_bytes_{0};
  std::atomic<bool> ended_{false};
  std::mutex mutex_;
  std::optional<Error> error_;  // under mutex_
};

Status RecordChecksums::verify(const std::vector<std::unique_ptr<ReadableFile>>& watched,
                               int threads, const std::function<void(std::uint64_t)>& on_progress,
                               const std::stop_token& stop) {
  if (records_.empty()) return {};
  Verification verification(*this, watched, stop);
  // Mostly padding is left, which is not worth the start of a thread.
  const std::uint64_t blocks = unseen_bytes() / kBlockBytes + 1;
  const auto useful =
      std::min<std::uint64_t>(static_cast<std::uint64_t>(std::clamp(threads, 1, 64)),
                              std::min<std::uint64_t>(blocks, records_.size()));
  {
    const HelperThreads helpers(useful - 1, [&] { verification.work({}); });
    verification.work(on_progress);
  }
  return verification.take();
}

}  // namespace evalcar::checkpoint
