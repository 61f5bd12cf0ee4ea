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

Status verify_record(const ReadableFile& file, const std::string& path, const PlanRecord& record,
                     std::vector<std::byte>& buffer) {
  std::uint32_t crc = 0;
  for (std::uint64_t done = 0; done < record.size;) {
    buffer.resize(static_cast<std::size_t>(std::min(kChunkBytes, record.size - done)));
    EVALCAR_RETURN_IF_ERROR(file.read_exactly_at(record.offset + done, buffer, path));
    crc = crc32(buffer, crc);
    done += buffer.size();
  }
  if (crc == record.crc32) return {};
  return make_error(ErrorCode::kCorruption,
                    path + ": the " + std::to_string(record.size) + " bytes at " +
                        std::to_string(record.offset) +
                        " do not match the CRC-32 that the file states (lost blocks?)");
}

}  // namespace

Status verify_checksums(const FileSystem& files, const Plan& plan, int threads) {
  if (plan.records.empty()) return {};
  std::vector<std::unique_ptr<ReadableFile>> opened;
  for (const PlanFile& file : plan.files) {
    EVALCAR_ASSIGN_OR_RETURN(opened.emplace_back(), files.open_readable(file.path));
  }
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::optional<Error> first_error;  // under mutex
  const auto work = [&] {
    std::vector<std::byte> buffer;
    for (std::size_t i = next++; i < plan.records.size(); i = next++) {
      const PlanRecord& record = plan.records[i];
      Status verified =
          verify_record(*opened[record.file], plan.files[record.file].path, record, buffer);
      if (verified.has_value()) continue;
      const std::scoped_lock lock(mutex);
      if (!first_error) first_error = verified.error();
      next = plan.records.size();
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (int i = 1; i < std::clamp(threads, 1, 64); ++i) helpers.emplace_back(work);
    work();
  }
  if (first_error) return *first_error;
  return {};
}

}  // namespace evalcar::checkpoint
