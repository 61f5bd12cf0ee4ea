// Generates the answers of a plan: prompts, then decoding, pack by pack.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "evaluator/engine/draft.h"
#include "evaluator/engine/engine.h"
#include "evaluator/engine/graph_decoder.h"
#include "evaluator/engine/pack_reader.h"
#include "evaluator/engine/planner.h"
#include "evaluator/engine/sampler.h"
#include "evaluator/models/attention.h"
#include "evaluator/models/model.h"

namespace evalcar::engine {

struct GeneratorOptions {
  ReaderOptions reading;
  std::function<void(std::size_t, std::int64_t, std::span<const float>)> observe_logits;
  std::int64_t draft_rows = 0;  ///< rows of a pass, at most, that drafts may fill; 0: no drafts
  bool graphs = true;           ///< on a GPU (graph_decoder.h)
  std::function<void(bool)> observe_pass = {};  ///< after each of decoding: was a graph replayed?
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
    std::int64_t prompt = 0;  ///< its tokens
    std::int64_t filled = 0;  ///< cache positions; at least one token of the answer is behind them
    Draft draft;
    /// The first position in the cache that was computed together with guesses; from there on a
    /// token has to be clearly the best. Absent: all is as without drafts.
    std::optional<std::int64_t> doubtful_from = {};
    bool again = false;  ///< what was doubtful is computed anew, until the next token is chosen
    Answer answer = {};

    /// More of the answer is known than its last token that is not in the cache.
    bool is_behind() const {
      return filled + 1 < prompt + static_cast<std::int64_t>(answer.tokens.size());
    }
  };
  /// Rows that are computed together: of each slot its next token's, then its guesses'.
  struct Pass {
    std::vector<models::Segment> segments;
    std::vector<std::span<const std::int32_t>> guesses;
    std::vector<std::int64_t> first_scores;  ///< the first row's place in the scores; -1: none is
                                             ///< asked for
  };
  enum class Fate { kGoesOn, kDone, kNoNumbers };

  void begin_sequences(const Pack& pack);
  Status read_prompts(const Pack& pack);
  std::int64_t guesses_now() const;
  Pass next_pass();
  at::Tensor compute(const Pass& pass);
  at::Tensor compute_on_device(const Pass& pass);
  void accept(const Pass& pass, const at::Tensor& scores);
  std::vector<std::int64_t> take_tokens(const Pass& pass, std::size_t depth,
                                        std::vector<std::int64_t> slots, at::Tensor scores,
                                        std::vector<Fate>& fates);
  void leave_unclear(std::vector<std::int64_t>& slots, at::Tensor& scores);
  Fate take(Sequence& sequence, std::int32_t token) const;
  void answer(std::int64_t slot, Fate fate);
  void observe(const at::Tensor& scores, std::span<const std::int64_t> slots) const;
  void remove(std::int64_t slot, Fate fate);

  const models::Model& model_;
  const RunInput input_;
  const GeneratorOptions options_;
  PackReader reader_;
  std::optional<GraphDecoder> decoder_;
  std::int64_t pack_sequences_ = 0;  // that the open pack began with
  std::vector<Sequence> sequences_;
  std::optional<Sampler> sampler_;
};

/// The error of a request whose scores are NaN or infinite; `where` says which.
Error not_finite(const std::string& where);

}  // namespace evalcar::engine
