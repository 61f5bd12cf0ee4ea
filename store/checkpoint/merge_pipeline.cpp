#include "store/checkpoint/merge_pipeline.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "store/checkpoint/convert.h"

namespace evalcar::checkpoint {
namespace {

/// Reads one chunk after another into its own scratch memory. One per thread.
class ChunkReader {
 public:
  explicit ChunkReader(const MergeSource& source) : source_(source) {}

  Status read(const MergeChunk& chunk, std::vector<std::byte>& out) {
    const TensorPlan& tensor = source_.plan->tensors[chunk.tensor];
    const DType to = output_dtype(tensor, source_.dtype);
    const std::size_t elements = chunk.box.elements();
    out.resize(elements * dtype_size(to));
    if (source_.readers.size() > 1 && is_convertible(tensor.dtype)) return average(chunk, to, out);
    // Of several checkpoints, what cannot be averaged (a counter, a mask) is the last one's.
    if (to == tensor.dtype) return source_.readers.back()->read_box(chunk.tensor, chunk.box, out);
    scratch_.resize(elements * dtype_size(tensor.dtype));
    EVALCAR_RETURN_IF_ERROR(source_.readers.back()->read_box(chunk.tensor, chunk.box, scratch_));
    convert(tensor.dtype, scratch_, to, out);
    return {};
  }

 private:
  Status average(const MergeChunk& chunk, DType to, std::vector<std::byte>& out) {
    const TensorPlan& tensor = source_.plan->tensors[chunk.tensor];
    const std::size_t elements = chunk.box.elements();
    scratch_.resize(elements * dtype_size(tensor.dtype));
    sum_.assign(elements, 0.0);
    for (const PlanReader* reader : source_.readers) {
      EVALCAR_RETURN_IF_ERROR(reader->read_box(chunk.tensor, chunk.box, scratch_));
      accumulate(tensor.dtype, scratch_, 1.0, sum_);
    }
    write_mean(sum_, static_cast<double>(source_.readers.size()), to, out);
    return {};
  }

  const MergeSource& source_;
  std::vector<std::byte> scratch_;
  std::vector<double> sum_;
};

/// A ring of slots: chunk i uses slot i % size. A reader waits until its slot was taken, the taker
/// until it was filled.
class Ring {
 public:
  Ring(const MergeSource& source, const std::vector<MergeChunk>& chunks, std::size_t slots)
      : source_(source), chunks_(chunks), slots_(slots) {}

  void read_chunks() {
    ChunkReader reader(source_);
    while (true) {
      std::size_t turn = 0;
      {
        std::unique_lock lock(mutex_);
        if (stopped_ || next_ == chunks_.size()) return;
        turn = next_++;
        changed_.wait(lock, [&] { return stopped_ || turn < taken_ + slots_.size(); });
        if (stopped_) return;
      }
      Slot& slot = slots_[turn % slots_.size()];
      Status status = reader.read(chunks_[turn], slot.bytes);
      const std::scoped_lock lock(mutex_);
      slot.status = std::move(status);
      slot.filled = true;
      changed_.notify_all();
    }
  }

  Status take_all(const std::function<Status(std::span<const std::byte>)>& sink) {
    Status result;
    for (std::size_t turn = 0; turn < chunks_.size() && result.has_value(); ++turn) {
      Slot& slot = slots_[turn % slots_.size()];
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return slot.filled; });
        result = slot.status;
      }
      if (source_.cancelled != nullptr && source_.cancelled->load()) {
        result = make_error(ErrorCode::kCancelled, "stopped on request");
      }
      if (result.has_value()) result = sink(slot.bytes);
      const std::scoped_lock lock(mutex_);
      slot.filled = false;
      taken_ = turn + 1;
      changed_.notify_all();
    }
    const std::scoped_lock lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
    return result;
  }

 private:
  struct Slot {
    std::vector<std::byte> bytes;
    Status status;
    bool filled = false;
  };

  const MergeSource& source_;
  const std::vector<MergeChunk>& chunks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Slot> slots_;  // status and filled under mutex_, bytes by whose turn it is
  std::size_t next_ = 0;     // the rest under mutex_
  std::size_t taken_ = 0;
  bool stopped_ = false;
};

}  // namespace

DType output_dtype(const TensorPlan& tensor, const std::optional<DType>& cast) {
  return cast && is_convertible(tensor.dtype) ? *cast : tensor.dtype;
}

Status run_merge_pipeline(const MergeSource& source, const std::vector<MergeChunk>& chunks,
                          int threads,
                          const std::function<Status(std::span<const std::byte>)>& sink) {
  const auto count = static_cast<std::size_t>(std::clamp(threads, 1, 32));
  Ring ring(source, chunks, count + 2);
  std::vector<std::jthread> readers;
  for (std::size_t i = 0; i < count; ++i) readers.emplace_back([&ring] { ring.read_chunks(); });
  return ring.take_all(sink);
}

}  // namespace evalcar::checkpoint
