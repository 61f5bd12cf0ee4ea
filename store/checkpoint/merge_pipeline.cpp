#include "store/checkpoint/merge_pipeline.h"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include "store/base/helper_threads.h"
#include "store/checkpoint/convert.h"
#include "store/checkpoint/hint_window.h"

namespace evalcar::checkpoint {
namespace {

/// Of the tensor as it is stored. Read, checked and cast, a chunk of this size stays in a second
/// level cache.
constexpr std::uint64_t kChunkBytes = std::uint64_t{1} << 20U;
constexpr std::uint64_t kPermutedChunkBytes = std::uint64_t{16} << 20U;
/// Of all chunks that are being read or wait to be taken.
constexpr std::uint64_t kMemoryBytes = std::uint64_t{64} << 20U;
/// How far the disk is told what comes. A tensor jumps between the ranks' files, so the kernel's
/// own readahead sees no sequence in any of them.
constexpr std::uint64_t kHintBytes = std::uint64_t{32} << 20U;

/// Whether a piece's elements lie in the file in row-major order of the tensor.
bool is_row_major(const Piece& piece) {
  std::int64_t inner = 0;  // the stride of the dimension behind
  for (std::size_t d = piece.size.size(); d-- > 0;) {
    if (piece.size[d] == 1) continue;
    if (piece.stride_elements[d] < inner) return false;
    inner = piece.stride_elements[d];
  }
  return true;
}

/// Memory that is used again and again, and never cleared.
template <typename T>
class Scratch {
 public:
  /// Room for `count` elements, whose values mean nothing. What a rare large chunk took is given
  /// back.
  std::span<T> fit(std::size_t count) {
    constexpr std::size_t kKept = 4 * kChunkBytes / sizeof(T);
    if (count > capacity_ || (capacity_ > kKept && count <= kKept)) {
      memory_.reset();
      capacity_ = std::max(count, kKept);
      memory_ = std::make_unique_for_overwrite<T[]>(capacity_);
    }
    used_ = {memory_.get(), count};
    return used_;
  }
  std::span<T> used() const { return used_; }

 private:
  std::unique_ptr<T[]> memory_;
  std::size_t capacity_ = 0;
  std::span<T> used_;
};

/// Reads one chunk after another into its own scratch memory. One per thread.
class ChunkReader {
 public:
  explicit ChunkReader(const MergeSource& source) : source_(source) {}

  Status read(const MergeChunk& chunk, Scratch<std::byte>& result) {
    const TensorPlan& tensor = source_.plan->tensors[chunk.tensor];
    const DType to = output_dtype(tensor, source_.dtype);
    const std::size_t elements = chunk.box.elements();
    const std::span<std::byte> out = result.fit(elements * dtype_size(to));
    if (source_.readers.size() > 1 && is_averaged(tensor.dtype)) return average(chunk, to, out);
    // Of several checkpoints, a counter or a mask is the last one's.
    if (to == tensor.dtype) return source_.readers.back()->read_box(chunk.tensor, chunk.box, out);
    const std::span<std::byte> stored = stored_.fit(elements * dtype_size(tensor.dtype));
    EVALCAR_RETURN_IF_ERROR(source_.readers.back()->read_box(chunk.tensor, chunk.box, stored));
    convert(tensor.dtype, stored, to, out);
    return {};
  }

 private:
  Status average(const MergeChunk& chunk, DType to, std::span<std::byte> out) {
    const TensorPlan& tensor = source_.plan->tensors[chunk.tensor];
    const std::size_t elements = chunk.box.elements();
    const std::span<std::byte> stored = stored_.fit(elements * dtype_size(tensor.dtype));
    const std::span<double> sum = sum_.fit(elements * numbers_per_element(tensor.dtype));
    std::fill(sum.begin(), sum.end(), kEmptySum);
    double divisor = 0;
    for (std::size_t i = 0; i < source_.readers.size(); ++i) {
      EVALCAR_RETURN_IF_ERROR(source_.readers[i]->read_box(chunk.tensor, chunk.box, stored));
      accumulate(tensor.dtype, stored, source_.weights[i], sum);
      divisor += source_.weights[i];
    }
    write_mean(sum, divisor, to, out);
    return {};
  }

  const MergeSource& source_;
  Scratch<std::byte> stored_;
  Scratch<double> sum_;
};

/// A ring of slots: chunk i uses slot i % size. A reader waits until its slot was taken and until
/// there is memory for its chunk (the next one to be taken always gets it), the taker until it was
/// filled.
class Ring {
 public:
  Ring(const MergeSource& source, const std::vector<MergeChunk>& chunks, std::size_t slots)
      : source_(source),
        chunks_(chunks),
        slots_(slots),
        hints_(chunks.size(), kHintBytes, [this](std::size_t i) { return stored_bytes(i); }) {}

  void read_chunks() {
    ChunkReader reader(source_);
    while (true) {
      std::size_t turn = 0;
      {
        std::unique_lock lock(mutex_);
        if (stopped_ || next_ == chunks_.size()) return;
        turn = next_++;
        const auto [first, last] = hints_.advance(turn);
        lock.unlock();  // a hint takes the time of making room for what it asks for
        for (std::size_t i = first; i < last; ++i) hint(chunks_[i]);
        lock.lock();
        const std::uint64_t bytes = memory_of(chunks_[turn]);
        changed_.wait(lock, [&] {
          const bool fits = turn == taken_ || memory_ + bytes <= kMemoryBytes;
          return stopped_ || (turn < taken_ + slots_.size() && fits);
        });
        if (stopped_) return;
        memory_ += bytes;
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
      if (result.has_value()) result = sink(slot.bytes.used());
      const std::scoped_lock lock(mutex_);
      slot.filled = false;
      memory_ -= memory_of(chunks_[turn]);
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
    Scratch<std::byte> bytes;
    Status status;
    bool filled = false;
  };

  std::uint64_t stored_bytes(std::size_t chunk) const {
    const MergeChunk& of = chunks_[chunk];
    return of.box.elements() * dtype_size(source_.plan->tensors[of.tensor].dtype);
  }

  void hint(const MergeChunk& chunk) const {
    for (const PlanReader* reader : source_.readers) reader->will_read(chunk.tensor, chunk.box);
  }

  /// What its bytes, and what they are made of, take.
  std::uint64_t memory_of(const MergeChunk& chunk) const {
    const TensorPlan& tensor = source_.plan->tensors[chunk.tensor];
    const DType to = output_dtype(tensor, source_.dtype);
    const bool averaged = source_.readers.size() > 1 && is_averaged(tensor.dtype);
    const std::uint64_t sum = sizeof(double) * numbers_per_element(tensor.dtype);
    const std::uint64_t between = averaged             ? sum + dtype_size(tensor.dtype)
                                  : to != tensor.dtype ? dtype_size(tensor.dtype)
                                                       : 0;
    return chunk.box.elements() * (dtype_size(to) + between);
  }

  const MergeSource& source_;
  const std::vector<MergeChunk>& chunks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Slot> slots_;  // status and filled under mutex_, bytes by whose turn it is
  std::size_t next_ = 0;     // the rest under mutex_
  std::size_t taken_ = 0;
  HintWindow hints_;
  std::uint64_t memory_ = 0;
  bool stopped_ = false;
};

/// The same in the caller's own thread, where the system gives no other.
Status read_alone(const MergeSource& source, const std::vector<MergeChunk>& chunks,
                  const std::function<Status(std::span<const std::byte>)>& sink) {
  ChunkReader reader(source);
  Scratch<std::byte> bytes;
  for (const MergeChunk& chunk : chunks) {
    if (source.cancelled != nullptr && source.cancelled->load()) {
      return make_error(ErrorCode::kCancelled, "stopped on request");
    }
    EVALCAR_RETURN_IF_ERROR(reader.read(chunk, bytes));
    EVALCAR_RETURN_IF_ERROR(sink(bytes.used()));
  }
  return {};
}

}  // namespace

DType output_dtype(const TensorPlan& tensor, const std::optional<DType>& cast) {
  return cast && is_convertible(tensor.dtype) ? *cast : tensor.dtype;
}

std::uint64_t output_bytes(const TensorPlan& tensor, const std::optional<DType>& cast) {
  return tensor.elements() * dtype_size(output_dtype(tensor, cast));
}

std::vector<Box> merge_boxes(const TensorPlan& tensor) {
  const bool row_major = std::all_of(tensor.pieces.begin(), tensor.pieces.end(), is_row_major);
  return row_major_boxes(tensor, row_major ? kChunkBytes : kPermutedChunkBytes);
}

Status run_merge_pipeline(const MergeSource& source, const std::vector<MergeChunk>& chunks,
                          int threads,
                          const std::function<Status(std::span<const std::byte>)>& sink) {
  const auto count = static_cast<std::size_t>(std::clamp(threads, 1, 32));
  Ring ring(source, chunks, count + 2);
  const HelperThreads readers(count, [&ring] { ring.read_chunks(); });
  return readers.size() > 0 ? ring.take_all(sink) : read_alone(source, chunks, sink);
}

}  // namespace evalcar::checkpoint
