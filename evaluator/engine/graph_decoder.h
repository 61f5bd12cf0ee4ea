// Decoding on a GPU: the next row of each slot, enqueued as one CUDA graph.
#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "evaluator/models/attention.h"
#include "evaluator/models/model.h"
#include "evaluator/weights/page_locked.h"

namespace evalcar::engine {

/// Rows that are computed for so many sequences: a power of two or one and a half of one, so that a
/// few graphs do for every number; not more than `most`.
std::int64_t padded_rows(std::int64_t rows, std::int64_t most);
/// Keys that attention has room for, likewise: a power of two, not more than a slot's capacity.
std::int64_t padded_keys(std::int64_t keys, std::int64_t capacity);

/// The next token of a slot, which is not in the cache.
struct NextRow {
  std::int32_t token = 0;
  std::int64_t position = 0;  ///< on all three axes
  std::int64_t place = 0;     ///< in the cache: all before it are filled
};

/// One run over one model, which must outlive it. A shape is computed as ever the first times that
/// it comes, then captured, and replayed from then on, by the same kernels: graph or not, a row has
/// the same bits. Not thread-safe. May throw c10::Error.
class GraphDecoder {
 public:
  /// Without `graphs` nothing is captured, which is for comparison.
  GraphDecoder(const models::Model& model, at::Device device, bool graphs);
  ~GraphDecoder();
  GraphDecoder(const GraphDecoder&) = delete;
  GraphDecoder& operator=(const GraphDecoder&) = delete;

  /// Whether such a cache can be decoded so: on a GPU, by the kernels that take what they need to
  /// know of a row from the device.
  static bool can_decode(const models::KvCache& cache, models::AttentionKind kind);

  /// Row i is slot i's; `most_rows`, at most the slots of the cache, is what the pack began with.
  /// Returns their scores, (rows.size(), vocab), which the next call overwrites:
  /// what is asked of them has come back to the host by then, since what is uploaded goes through
  /// one buffer. `on_layer` is called once for a graph.
  at::Tensor scores(std::span<const NextRow> rows, std::int64_t most_rows, models::KvCache& cache,
                    const models::OnLayer& on_layer);
  /// Calls of scores() that replayed a graph.
  std::int64_t replayed() const { return replayed_; }

 private:
  struct Shape {
    std::int64_t rows = 0;
    std::int64_t keys = 0;
    auto operator<=>(const Shape&) const = default;
  };
  struct Graph;
  struct Known {
    int times = 0;  ///< computed without a graph
    std::unique_ptr<Graph> graph;
  };
  void follow(const models::KvCache& cache);
  void upload(std::span<const NextRow> rows, const Shape& shape);
  at::Tensor compute(const Shape& shape, models::KvCache& cache, const models::OnLayer& on_layer);
  at::Tensor compute_and_capture(const Shape& shape, models::KvCache& cache,
                                 const models::OnLayer& on_layer, Known& known);
  std::unique_ptr<Graph> capture(const Shape& shape, models::KvCache& cache);

  const models::Model& model_;
  const at::Device device_;
  bool graphs_;
  bool was_short_ = false;      // of memory, while it captured
  const void* keys_ = nullptr;  // of the cache that the graphs read and write …
  std::vector<std::int64_t> sizes_;
  std::pair<unsigned long long, unsigned long long> pool_;  // … and where their memory is
  at::Tensor numbers_;                                      // (slots) int64: 0, 1, …
  weights::PageLocked host_;  // int64, of as many rows as there are slots; goes to …
  at::Tensor inputs_;
  std::map<Shape, Known> known_;
  std::int64_t replayed_ = 0;
};

}  // namespace evalcar::engine
