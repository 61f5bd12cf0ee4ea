// Reads the prompts of a pack into the slot cache: its pictures go through the tower, what a group
// shares is read once, and then whatever each request has of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <vector>

#include "evaluator/engine/engine.h"
#include "evaluator/engine/image_encoder.h"
#include "evaluator/engine/planner.h"
#include "evaluator/engine/requests.h"
#include "evaluator/models/model.h"

namespace evalcar::engine {

struct ReaderOptions {
  models::AttentionKind attention = models::AttentionKind::kSdpa;
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::Device(at::kCPU);
  std::int64_t prefill_tokens = 2048;  ///< rows computed together while prompts are read
  /// Slots of the cache, and their positions, at least: as much as any pack needs, so that it has
  /// the same shape and address for all of them; 0: what each needs.
  std::int64_t slots = 0;
  std::int64_t capacity = 0;
};

/// The requests of a run, with what is asked around them.
struct RunInput {
  std::span<const Request> requests;
  std::span<const PreparedRequest> prepared;  ///< one for each request
  const ImageSource& images;
  const RunEvents& events;
  std::stop_token stop;
};

/// Places [begin, end) of the line in `slot`, to be read.
struct Reading {
  std::int64_t slot = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::vector<std::int64_t> wanted =
      {};  ///< places whose final hidden state is asked for, ascending
};

/// Which row of a batch's hidden states it is.
struct ReadRow {
  std::int64_t slot = 0;
  std::int64_t place = 0;
};

/// One pack at a time over one model. References must outlive it. May throw c10::Error. Not
/// thread-safe.
class PackReader {
 public:
  PackReader(const models::Model& model, RunInput input, const PictureSupply& pictures,
             const ReaderOptions& options);

  /// Readies pictures, cache and slots. A request whose picture cannot be read is answered with
  /// that error and leaves the pack, as do those that are not wanted. Packs are opened in their
  /// order, `number` from 0 on. kCancelled when stopped.
  Status open(std::size_t number, Pack& pack);
  /// Reads what groups share into the slots of all their members. kCancelled when stopped.
  Status read_prefixes(const Pack& pack);
  /// Reads `work` in order, in batches of at most prefill_tokens rows; what does not fit is cut
  /// anywhere and goes on in the next. `on_rows` gets each batch's wanted hidden states,
  /// (rows.size(), hidden), in the order of `work`. kCancelled when stopped.
  using OnRows = std::function<Status(const at::Tensor& hidden, std::span<const ReadRow> rows)>;
  Status read(std::vector<Reading> work, const OnRows& on_rows);

  /// Of each slot of the open pack.
  const std::vector<std::size_t>& requests() const { return requests_; }
  /// Takes the last slot's sequence, of `length` places, in place of this one's; with `clear` zeros
  /// in place of what else the slot holds: where that may be no numbers.
  void move_last_to(std::int64_t slot, std::int64_t length, bool clear);
  models::KvCache& cache() { return cache_; }
  const models::OnLayer& on_layer() const { return on_layer_; }
  at::Tensor int64_tensor(const std::vector<std::int64_t>& values) const;

 private:
  const Request& request_in(std::int64_t slot) const;
  const PreparedRequest& prepared_in(std::int64_t slot) const;
  bool wanted(std::size_t request) const;
  Status encode_images(std::size_t number, Pack& pack);
  void allocate_cache(const Pack& pack);
  models::Segment segment_of(const Reading& piece, std::int64_t row) const;
  at::Tensor read_batch(std::span<const Reading> batch, std::span<const models::Segment> segments);
  /// The batch without positions and wanted rows.
  models::TextBatch embed(std::span<const Reading> batch,
                          std::span<const models::Segment> segments);
  void copy_slot(std::int64_t from, std::int64_t to, std::int64_t length);

  const models::Model& model_;
  const RunInput input_;
  const ReaderOptions options_;
  models::OnLayer on_layer_;
  ImageEncoder images_;
  models::KvCache cache_;
  at::Tensor cache_memory_;
  std::vector<std::size_t> requests_;
};

Error cancelled_run();

}  // namespace evalcar::engine
