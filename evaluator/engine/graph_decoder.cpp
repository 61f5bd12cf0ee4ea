// A layer of a decode pass is some ten kernels of a few microseconds, and to launch one takes the
// host as long: a graph launches all of them at once. What changes from pass to pass is read from
// the device (tokens, positions, places, what each row sees), at the same addresses each time; what
// a graph has fixed is the number of rows, how many keys attention has room for, and the addresses
// of weights and cache.
//
// Rows are filled up to one of a few numbers, whether a graph runs or not: so which passes were
// captured decides no bit. A row that fills up stands in a slot that nobody uses, at its place 0.
#include "evaluator/engine/graph_decoder.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <exception>
#include <map>
#include <mutex>

#include "evaluator/engine/device.h"

#ifdef EVALCAR_CUDA
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

namespace evalcar::engine {
namespace {

// A shape is captured when it comes this often: capturing takes the time of a few passes.
constexpr int kWorthCapturing = 3;
constexpr std::int64_t kLeastKeys = 128;

// What is uploaded of each row, in numbers: token, position, place, and two ranges of keys.
constexpr std::int64_t kNumbersOfRow = 7;

std::int64_t power_of_two(std::int64_t least) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(least)));
}

}  // namespace

std::int64_t padded_rows(std::int64_t rows, std::int64_t most) {
  const std::int64_t above = power_of_two(rows);
  const std::int64_t between = above / 4 * 3;
  return std::min(above >= 4 && between >= rows ? between : above, std::max(rows, most));
}

std::int64_t padded_keys(std::int64_t keys, std::int64_t capacity) {
  return std::min(power_of_two(std::max(keys, kLeastKeys)), std::max(keys, capacity));
}

#ifdef EVALCAR_CUDA
namespace {

// After a capture that did not end as it should: libtorch would count it as under way for good, and
// give no memory back any more. Such a process captures nothing again.
std::atomic<bool> capture_failed = false;
void forget_capture(c10::DeviceIndex device, c10::MempoolId_t pool) {
  capture_failed = true;
  try {
    c10::cuda::CUDACachingAllocator::endAllocateToPool(device, pool);
    c10::cuda::CUDACachingAllocator::releasePool(device, pool);
  } catch (const c10::Error&) {
    // It was not counted.
  }
  try {  // page-locked memory has pools of its own, which ask the graph that is gone for its stream
    at::HostAllocator& host = *at::getHostAllocator(at::kCUDA);
    host.end_allocate_to_pool(pool);
    host.release_pool(pool);
  } catch (const c10::Error&) {
    // Nor there.
  }
}

// One for the life of the process, since libraries keep a workspace for each stream that they have
// seen; none of those that weights are copied on, which are of the other priority.
c10::cuda::CUDAStream capture_stream(c10::DeviceIndex device) {
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, c10::cuda::CUDAStream> streams;
  const std::scoped_lock lock(mutex);
  auto found = streams.find(device);
  if (found == streams.end()) {
    const auto stream = c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device);
    found = streams.emplace(device, stream).first;
  }
  return found->second;
}

// Graphs read what a tensor of theirs held after it is gone, which another allocator may undo.
bool can_capture() {
  return !capture_failed && c10::cuda::CUDACachingAllocator::name() == "native";
}

}  // namespace

struct GraphDecoder::Graph {
  at::cuda::CUDAGraph graph;
  at::Tensor scores;  ///< a view: its memory is the pool's, where other graphs write in their turn
};

GraphDecoder::GraphDecoder(const models::Model& model, at::Device device, bool graphs)
    : model_(model),
      device_(device),
      graphs_(graphs && can_capture()),
      pool_(at::cuda::graph_pool_handle()) {}

bool GraphDecoder::can_decode(const models::KvCache& cache, models::AttentionKind kind) {
  return models::CachedAttention::takes_rows_on_device(cache, kind);
}

at::Tensor GraphDecoder::scores(std::span<const NextRow> rows, std::int64_t most_rows,
                                models::KvCache& cache, const models::OnLayer& on_layer) {
  follow(cache);
  const auto count = static_cast<std::int64_t>(rows.size());
  std::int64_t keys = 0;
  for (const NextRow& row : rows) keys = std::max(keys, row.place + 1);
  const Shape shape{padded_rows(count, most_rows), padded_keys(keys, cache.capacity())};
  upload(rows, shape);
  Known& known = known_[shape];
  at::Tensor scores;
  if (known.graph) {
    known.graph->graph.replay();
    scores = known.graph->scores;
    ++replayed_;
    if (on_layer) on_layer();
  } else if (graphs_ && ++known.times == kWorthCapturing) {
    scores = compute_and_capture(shape, cache, on_layer, known);
  } else {
    scores = compute(shape, cache, on_layer);
  }
  return scores.narrow(0, 0, count);
}

// Graphs are of one cache, at one address and of one shape.
void GraphDecoder::follow(const models::KvCache& cache) {
  if (keys_ == cache.keys.const_data_ptr() && cache.keys.sizes() == sizes_) return;
  known_.clear();
  pool_ = at::cuda::graph_pool_handle();  // the last one went with its graphs
  keys_ = cache.keys.const_data_ptr();
  sizes_ = cache.keys.sizes().vec();
  const auto longs = at::TensorOptions().dtype(at::kLong);
  numbers_ = at::arange(cache.slots(), longs.device(device_));
  inputs_ = at::empty({kNumbersOfRow * cache.slots()}, longs.device(device_));
  host_ = weights::PageLocked(
      kNumbersOfRow * cache.slots() * static_cast<std::int64_t>(sizeof(std::int64_t)), device_);
}

// Kind by kind, each of shape.rows numbers or ranges.
void GraphDecoder::upload(std::span<const NextRow> rows, const Shape& shape) {
  const at::Tensor host = host_.bytes().view(at::kLong);
  std::int64_t* const to = host.mutable_data_ptr<std::int64_t>();
  const auto count = static_cast<std::int64_t>(rows.size());
  const std::int64_t window = model_.info().window;
  for (std::int64_t i = 0; i < shape.rows; ++i) {
    const NextRow row = i < count ? rows[static_cast<std::size_t>(i)] : NextRow{};
    const std::int64_t end = row.place + 1;
    to[i] = row.token;
    to[shape.rows + i] = row.position;
    to[2 * shape.rows + i] = row.place;
    to[3 * shape.rows + 2 * i] = 0;
    to[3 * shape.rows + 2 * i + 1] = end;
    to[5 * shape.rows + 2 * i] = window == 0 ? 0 : std::max<std::int64_t>(0, end - window);
    to[5 * shape.rows + 2 * i + 1] = end;
  }
  const std::int64_t all = kNumbersOfRow * shape.rows;
  inputs_.narrow(0, 0, all).copy_(host.narrow(0, 0, all), /*non_blocking=*/true);
}

at::Tensor GraphDecoder::compute(const Shape& shape, models::KvCache& cache,
                                 const models::OnLayer& on_layer) {
  const auto part = [&](std::int64_t first, std::int64_t count) {
    return inputs_.narrow(0, first * shape.rows, count * shape.rows);
  };
  const std::int64_t window = model_.info().window;
  const at::Tensor number = numbers_.narrow(0, 0, shape.rows);
  const models::CachedAttention attention(
      {.slots = number,
       .places = part(2, 1),
       .sight = {part(3, 2).view({-1, 2}), shape.keys},
       .windowed = {part(5, 2).view({-1, 2}),
                    window == 0 ? shape.keys : std::min(window, shape.keys)}},
      cache);
  return model_.logits(model_.forward({.embeddings = model_.embed(part(0, 1)),
                                       .deepstack = {},
                                       .positions = part(1, 1).unsqueeze(0).expand({3, -1}),
                                       .wanted = number},
                                      attention, on_layer));
}

// The pass itself runs on the stream that is captured then, so that what libraries make at their
// first call on a stream is there. Without graphs the answers are the same, only later: what cannot
// be captured is no error, and a device that is lost says so at the next call.
at::Tensor GraphDecoder::compute_and_capture(const Shape& shape, models::KvCache& cache,
                                             const models::OnLayer& on_layer, Known& known) {
  const c10::cuda::CUDAStream stream = capture_stream(device_.index());
  c10::cuda::getCurrentCUDAStream(device_.index()).synchronize();
  at::Tensor scores;
  {
    const c10::cuda::CUDAStreamGuard guard(stream);
    scores = compute(shape, cache, on_layer);
    stream.synchronize();
    try {
      known.graph = capture(shape, cache);
    } catch (const c10::OutOfMemoryError&) {
      // While it captures, the allocator gives nothing back of what it keeps: once more without.
      graphs_ = !std::exchange(was_short_, true);
      known.times = 0;
      // The last pool went with the graph where that was its first, and cannot be begun again.
      pool_ = at::cuda::graph_pool_handle();
      release_unused_memory(device_);
    } catch (const c10::Error& error) {
      graphs_ = false;
      TORCH_WARN_ONCE("decoding goes on without CUDA graphs: ", error.what_without_backtrace());
    }
  }
  return scores.clone();  // of this stream
}

// On the current stream, which is captured no more afterwards, whatever happens. Other threads read
// weights meanwhile, and may allocate and wait.
std::unique_ptr<GraphDecoder::Graph> GraphDecoder::capture(const Shape& shape,
                                                           models::KvCache& cache) {
  auto made = std::make_unique<Graph>();
  try {
    made->graph.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
  } catch (const c10::Error&) {
    forget_capture(device_.index(), pool_);
    throw;
  }
  std::exception_ptr failed;
  try {
    const at::Tensor captured = compute(shape, cache, {});
    made->scores = at::from_blob(captured.mutable_data_ptr(), captured.sizes(), captured.options());
  } catch (...) {
    failed = std::current_exception();
  }
  try {
    made->graph.capture_end();
  } catch (const c10::Error&) {
    forget_capture(device_.index(), pool_);
    if (!failed) failed = std::current_exception();
  }
  if (failed) std::rethrow_exception(failed);
  return made;
}

#else

struct GraphDecoder::Graph {};

GraphDecoder::GraphDecoder(const models::Model& model, at::Device device, bool graphs)
    : model_(model), device_(device), graphs_(graphs) {}

bool GraphDecoder::can_decode(const models::KvCache&, models::AttentionKind) { return false; }

at::Tensor GraphDecoder::scores(std::span<const NextRow>, std::int64_t, models::KvCache&,
                                const models::OnLayer&) {
  TORCH_CHECK(false, "GraphDecoder: built without CUDA");
}

#endif

GraphDecoder::~GraphDecoder() = default;

}  // namespace evalcar::engine
