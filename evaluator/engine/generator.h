// Generates the answers of a plan: prompts, then decoding, pack by pack.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "evaluator/engine/engine.h"
#include "evaluator/engine/pack_reader.h"
#include "evaluator/engine/planner.h"
#include "evaluator/engine/sampler.h"
#include "evaluator/models/model.h"

namespace evalcar::engine {

struct GeneratorOptions {
  ReaderOptions reading;
  std::function<void(std::size_t, std::int64_t, std::span<const float>)> observe_logits;
};

/// One run over one model. References must outlive it. May throw c10::Error. Not thread-safe.
class Generator {
 public:
  Generator(const models::Model& model, RunInput input, const PictureSupply& pictures,
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
  Status read_prompts(const Pack& pack);
  at::Tensor decode_step();
  void accept(const at::Tensor& scores);
  void observe(const at::Tensor& scores) const;
  void remove(std::int64_t slot);

  const models::Model& model_;
  const RunInput input_;
  const GeneratorOptions options_;
  PackReader reader_;
  std::vector<Sequence> sequences_;
  std::optional<Sampler> sampler_;
  at::Tensor scores_;  // (sequences, vocab): of the last prompt token, after read_prompts
};

/// The error of a request whose scores are NaN or infinite; `where` says which.
Error not_finite(const std::string& where);

}  // namespace evalcar::engine
