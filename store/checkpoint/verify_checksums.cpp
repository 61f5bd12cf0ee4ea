#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

#include "store/checkpoint/crc32.h"
#include "store/checkpoint/plan.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::uint64_t kChunkBytes = std::uint64_t{1} << 20U;

/// What the threads share: the next record, the progress, the first error.
class Verification {
 public:
  Verification(const Plan& plan, const std::stop_token& stop) : plan_(plan), stop_(stop) {}

  Status open(const FileSystem& files) {
    for (const PlanFile& file : plan_.files) {
      EVALCAR_ASSIGN_OR_RETURN(opened_.emplace_back(), files.open_readable(file.path));
    }
    return {};
  }

  /// `on_block(bytes_done)` may be empty.
  void work(const std::function<void(std::uint64_t)>& on_block) {
    std::vector<std::byte> buffer;
    for (std::size_t i = next_++; i < plan_.records.size() && !ended_; i = next_++) {
      Status verified = verify(plan_.records[i], on_block, buffer);
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
  Status verify(const PlanRecord& record, const std::function<void(std::uint64_t)>& on_block,
                std::vector<std::byte>& buffer) {
    const std::string& path = plan_.files[record.file].path;
    std::uint32_t crc = 0;
    for (std::uint64_t done = 0; done < record.size;) {
      if (stop_.stop_requested())
        return make_error(ErrorCode::kCancelled, "stopped while verifying checksums");
      if (ended_) return {};  // the error of another thread is told
      buffer.resize(static_cast<std::size_t>(std::min(kChunkBytes, record.size - done)));
      EVALCAR_RETURN_IF_ERROR(
          opened_[record.file]->read_exactly_at(record.offset + done, buffer, path));
      crc = crc32(buffer, crc);
      done += buffer.size();
      const std::uint64_t all = done_bytes_ += buffer.size();
      if (on_block) on_block(all);
    }
    if (crc == record.crc32) return {};
    return make_error(ErrorCode::kCorruption,
                      path + ": the " + std::to_string(record.size) + " bytes at " +
                          std::to_string(record.offset) +
                          " do not match the CRC-32 that the file states (lost blocks?)");
  }

  const Plan& plan_;
  const std::stop_token& stop_;
  std::vector<std::unique_ptr<ReadableFile>> opened_;
  std::atomic<std::size_t> next_{0};
  std::atomic<std::uint64_t> done_bytes_{0};
  std::atomic<bool> ended_{false};
  std::mutex mutex_;
  std::optional<Error> error_;  // under mutex_
};

}  // namespace

std::uint64_t Plan::record_bytes() const {
  std::uint64_t total = 0;
  for (const PlanRecord& record : records) total += record.size;
  return total;
}

Status verify_checksums(const FileSystem& files, const Plan& plan, int threads,
                        const std::function<void(std::uint64_t)>& on_progress,
                        const std::stop_token& stop) {
  if (plan.records.empty()) return {};
  Verification verification(plan, stop);
  EVALCAR_RETURN_IF_ERROR(verification.open(files));
  {
    std::vector<std::jthread> helpers;
    for (int i = 1; i < std::clamp(threads, 1, 64); ++i)
      helpers.emplace_back([&] { verification.work({}); });
    verification.work(on_progress);
  }
  return verification.take();
}

}  // namespace evalcar::checkpoint
