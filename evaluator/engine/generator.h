// Runs a plan: pictures, prefixes, prompts, then decoding, pack by pack.
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
#include "evaluator/engine/sampler.h"
#include "evaluator/models/model.h"

namespace evalcar::engine {

struct GeneratorOptions {
  models::AttentionKind attention = models::AttentionKind::kSdpa;
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::Device(at::kCPU);
  std::int64_t prefill_tokens = 2048;  ///< rows computed together while prompts are read
  std::int64_t patch_budget = 4096;
  std::function<void(std::size_t, std::int64_t, std::span<const float>)> observe_logits;
};

/// What is known of a request before it runs: its positions and where its pictures stand.
struct PreparedRequest {
  models::PromptPositions positions;
  PlanRequest plan;
};

/// Checks a request against the model, the vocabulary and the pictures. kInvalidArgument says what
/// is wrong with it.
Result<PreparedRequest> prepare_request(const models::Model& model, const Request& request,
                                        const ImageSource& images);

/// One run over one model. References must outlive it. May throw c10::Error. Not thread-safe.
class Generator {
 public:
  Generator(const models::Model& model, std::span<const Request> requests,
            std::span<const PreparedRequest> prepared, const ImageSource& images,
            PictureQueue& pictures, const RunEvents& events, std::stop_token stop,
            GeneratorOptions options);

  /// A request whose picture cannot be read is answered with that error, and the others go on.
  /// Requests that are not wanted are left out. Packs are run in their order, `number` from 0 on.
  Status run_pack(std::size_t number, Pack pack);

 private:
  /// A sequence stands in the slot of its index in `sequences_`.
  struct Sequence {
    std::size_t request = 0;
    std::int64_t filled = 0;  ///< cache positions
    std::int64_t step = 0;
    std::int32_t last = 0;  ///< token to feed next
    Answer answer;
  };
  /// Prompt tokens [begin, end) of the sequence in `slot`, to be read.
  struct Reading {
    std::int64_t slot = 0;
    std::int64_t begin = 0;
    std::int64_t end = 0;
    bool last = false;  ///< its final row's scores are wanted
  };
  bool wanted(std::size_t request) const;
  Status encode_images(std::size_t number, Pack& pack);
  void allocate_cache(const Pack& pack);
  Status read_prompts(const Pack& pack);
  Result<at::Tensor> read(std::vector<Reading> work);
  at::Tensor read_batch(std::span<const Reading> batch, std::span<const models::Segment> segments);
  /// The batch without positions and wanted rows.
  models::TextBatch embed(std::span<const Reading> batch,
                          std::span<const models::Segment> segments);
  void copy_prefix(std::int64_t from, std::int64_t to, std::int64_t length);
  at::Tensor decode_step();
  void accept(const at::Tensor& scores);
  void observe(const at::Tensor& scores) const;
  void remove(std::int64_t slot);
  at::Tensor int64_tensor(const std::vector<std::int64_t>& values) const;

  const models::Model& model_;
  std::span<const Request> requests_;
  std::span<const PreparedRequest> prepared_;
  const RunEvents& events_;
  std::stop_token stop_;
  models::OnLayer on_layer_;
  ImageEncoder images_;
  GeneratorOptions options_;
  models::KvCache cache_;
  at::Tensor cache_memory_;
  std::vector<Sequence> sequences_;
  std::optional<Sampler> sampler_;
  at::Tensor scores_;  // (sequences, vocab): of the last prompt token, after read_prompts
};

}  // namespace evalcar::engine
