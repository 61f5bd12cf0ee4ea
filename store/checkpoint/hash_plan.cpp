#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>

#include "store/base/helper_threads.h"
#include "store/checkpoint/plan.h"

namespace evalcar::checkpoint {
namespace {

/// One read; a thread's whole memory.
constexpr std::uint64_t kChunkBytes = std::uint64_t{4} << 20U;
/// How far ahead the disk is told of what comes, so that it works while this hashes.
constexpr std::uint64_t kHintBytes = std::uint64_t{32} << 20U;

/// Tells the disk of the chunks to come, over the bounds of tensors: those of a layer are smaller
/// than what a disk has to have in flight. Thread-safe.
class ReadAhead {
 public:
  /// `order`: the indices of the tensors, as they are taken.
  ReadAhead(const PlanReader& reader, const Plan& plan, const std::vector<std::size_t>& order)
      : reader_(reader), plan_(plan), order_(order) {}

  /// So many bytes are about to be read, beside all that was told before.
  void will_take(std::uint64_t bytes) {
    taken_ += bytes;
    // Telling may wait for the disk's queue: one thread does it, the others go on.
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return;
    while (told_ < taken_ + kHintBytes && turn_ < order_.size()) {
      const TensorPlan& tensor = plan_.tensors[order_[turn_]];
      if (chunk_ == 0) chunks_ = row_major_boxes(tensor, kChunkBytes);
      if (chunk_ < chunks_.size()) {
        told_ += chunks_[chunk_].elements() * dtype_size(tensor.dtype);
        reader_.will_read(order_[turn_], chunks_[chunk_++]);
      }
      if (chunk_ >= chunks_.size()) {
        ++turn_;
        chunk_ = 0;
      }
    }
  }

 private:
  const PlanReader& reader_;
  const Plan& plan_;
  const std::vector<std::size_t>& order_;
  std::atomic<std::uint64_t> taken_{0};  // bytes
  std::mutex mutex_;                     // of all that follows
  std::size_t turn_ = 0;                 // the tensor told of next, in order_
  std::vector<Box> chunks_;              // of that tensor
  std::size_t chunk_ = 0;                // of chunks_
  std::uint64_t told_ = 0;               // bytes
};

/// What the threads share: the next tensor, the progress, the first error.
class HashJob {
 public:
  HashJob(const PlanReader& reader, const Plan& plan,
          const std::function<void(std::uint64_t)>& on_progress)
      : reader_(reader), plan_(plan), on_progress_(on_progress), digests_(plan.tensors.size()) {
    // The largest first, so that no thread is left alone with one at the end.
    order_.resize(plan.tensors.size());
    for (std::size_t i = 0; i < order_.size(); ++i) order_[i] = i;
    std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
      return plan.tensors[a].bytes() > plan.tensors[b].bytes();
    });
    ahead_.emplace(reader_, plan_, order_);
  }

  void work() {
    std::vector<std::byte> buffer;
    while (!failed_) {
      const std::size_t turn = next_++;
      if (turn >= order_.size()) return;
      if (Status hashed = hash(order_[turn], buffer); !hashed.has_value()) {
        const std::scoped_lock lock(mutex_);
        if (!failed_.exchange(true)) error_ = hashed.error();
      }
    }
  }

  Result<std::vector<TensorDigest>> take() {
    if (error_) return *error_;
    return std::move(digests_);
  }

 private:
  Status hash(std::size_t index, std::vector<std::byte>& buffer) {
    const TensorPlan& tensor = plan_.tensors[index];
    Sha256 hash;
    const std::vector<Box> boxes = row_major_boxes(tensor, kChunkBytes);
    for (const Box& box : boxes) {
      buffer.resize(box.elements() * dtype_size(tensor.dtype));
      ahead_->will_take(buffer.size());
      EVALCAR_RETURN_IF_ERROR(reader_.read_box(index, box, buffer));
      hash.update(buffer);
      if (on_progress_) {
        const std::scoped_lock lock(mutex_);
        done_ += buffer.size();
        on_progress_(done_);
      }
    }
    digests_[index] = {tensor.name, tensor.dtype, tensor.shape, to_hex(hash.finish())};
    return {};
  }

  const PlanReader& reader_;
  const Plan& plan_;
  const std::function<void(std::uint64_t)>& on_progress_;
  std::vector<TensorDigest> digests_;
  std::vector<std::size_t> order_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::optional<ReadAhead> ahead_;
  std::mutex mutex_;
  std::uint64_t done_ = 0;      // under mutex_
  std::optional<Error> error_;  // under mutex_
};

}  // namespace

Result<std::vector<TensorDigest>> hash_plan(const FileSystem& files, const Plan& plan, int threads,
                                            const std::function<void(std::uint64_t)>& on_progress) {
  EVALCAR_ASSIGN_OR_RETURN(const PlanReader reader, PlanReader::open(files, plan));
  HashJob job(reader, plan, on_progress);
  {
    const std::size_t count = std::min<std::size_t>(
        static_cast<std::size_t>(std::clamp(threads, 1, 64)), plan.tensors.size());
    const HelperThreads helpers(count - std::min<std::size_t>(count, 1), [&job] { job.work(); });
    job.work();
  }
  EVALCAR_ASSIGN_OR_RETURN(auto digests, job.take());
  EVALCAR_RETURN_IF_ERROR(reader.verify_checksums(threads));
  EVALCAR_RETURN_IF_ERROR(reader.verify_unchanged());
  return digests;
}

}  // namespace evalcar::checkpoint
