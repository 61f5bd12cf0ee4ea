// Scores given tokens: teacher-forced spans of a text, and continuations that branch from a
// context.
//
// A context is read once. The first token of each continuation is scored by the context's last row;
// the others stand in the context's slot, one continuation behind the other, each row seeing the
// context and its own continuation alone. The scores over the vocabulary exist for a few rows at a
// time, of which two numbers are kept: how likely the token was, and whether it was the best.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "evaluator/engine/engine.h"
#include "evaluator/engine/pack_reader.h"
#include "evaluator/engine/planner.h"
#include "evaluator/models/model.h"

namespace evalcar::engine {

struct ScorerOptions {
  ReaderOptions reading;
  /// Rows over the vocabulary at once; 0: as fit into 64 MiB, or more where the vocabulary goes in
  /// blocks.
  std::int64_t scored_rows = 0;
};

/// One run over one model. References must outlive it. May throw c10::Error. Not thread-safe.
class Scorer {
 public:
  Scorer(const models::Model& model, RunInput input, const PictureSupply& pictures,
         const ScorerOptions& options);

  /// Answers the requests of a pack, all of them with `scoring`. Scores that are no numbers are the
  /// error of their request. Otherwise as Generator::run_pack().
  Status run_pack(std::size_t number, Pack pack);

 private:
  /// A request's tokens, in the order in which their rows are read.
  struct Sequence {
    std::size_t request = 0;
    std::vector<ScoredToken> tokens;
    std::size_t next = 0;  ///< first of `tokens` that has no score yet
    bool finite = true;
    Answer answer;
  };
  std::vector<Reading> readings_of(const Pack& pack);
  std::int64_t rows_at_once(const at::Tensor& hidden) const;
  Status score_rows(const at::Tensor& hidden, std::span<const ReadRow> rows);
  void score_chunk(const at::Tensor& hidden, std::span<const ReadRow> rows);
  void answer(const Sequence& sequence) const;

  const models::Model& model_;
  const RunInput input_;
  const std::int64_t scored_rows_;
  PackReader reader_;
  std::vector<Sequence> sequences_;  // of each slot
};

}  // namespace evalcar::engine
