#include "store/checkpoint/merge_output.h"

#include <stop_token>
#include <system_error>
#include <utility>

namespace evalcar::checkpoint {
namespace {

/// Left alone, the kernel begins after half a minute or a tenth of the memory, so that a merge
/// would first read and then write. More at a time than this would leave more for the end.
constexpr std::uint64_t kStepBytes = std::uint64_t{16} << 20U;

}  // namespace

MergeOutput::MergeOutput(std::unique_ptr<WritableFile> file) : file_(std::move(file)) {}

Status MergeOutput::append(std::span<const std::byte> bytes) {
  EVALCAR_RETURN_IF_ERROR(file_->append(bytes));
  appended(bytes.size());
  return {};
}

Status MergeOutput::append(std::string_view text) {
  return append(std::as_bytes(std::span<const char>(text.data(), text.size())));
}

Result<std::uint64_t> MergeOutput::append_copy_of(const ReadableFile& source, std::uint64_t offset,
                                                  std::uint64_t size) {
  EVALCAR_ASSIGN_OR_RETURN(const std::uint64_t n, file_->append_copy_of(source, offset, size));
  appended(n);
  return n;
}

Status MergeOutput::finish() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  EVALCAR_RETURN_IF_ERROR(file_->sync());
  return file_->close();
}

void MergeOutput::appended(std::uint64_t bytes) {
  since_told_ += bytes;
  if (since_told_ < kStepBytes) return;
  since_told_ = 0;
  if (!thread_.joinable() && !alone_) {
    try {
      thread_ = std::jthread([this](const std::stop_token& stop) { write_back(stop); });
    } catch (const std::system_error&) {  // a limit on threads
      alone_ = true;
    }
  }
  if (alone_) return file_->start_writing_back();
  const std::scoped_lock lock(mutex_);
  wanted_ = true;
  changed_.notify_one();
}

/// On a thread of its own, for it looks for blocks on the disk, and waits where the queue is full.
void MergeOutput::write_back(const std::stop_token& stop) {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [&] { return wanted_; })) return;
      if (stop.stop_requested()) return;  // sync() is next
      wanted_ = false;
    }
    file_->start_writing_back();
  }
}

}  // namespace evalcar::checkpoint
