// From scores to the next tokens, as transformers' generate does it: repetition penalty first, then
// greedy or temperature, top-k, top-p.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "evaluator/engine/engine.h"

namespace evalcar::engine {

/// In place of a token: the scores were NaN or infinite.
inline constexpr std::int32_t kNoToken = -1;

/// Of a row's largest absolute score: how far the best token has to be ahead of every other, so
/// that computing the row, or keys and values that it attends to, together with other rows could
/// not have made another one the best. In float32 that changes scores by up to 3e-6 of the largest
/// (tests/parity/models/test_drafts.py), 4e-6 in 28 layers; this is sixty times as much.
inline constexpr double kClearMargin = 1.0 / 4096;

/// One per pack. Rows of the scores are slots. Not thread-safe.
class Sampler {
 public:
  Sampler(std::int64_t slots, std::int64_t vocab, at::Device device);

  /// Puts a request into a slot.
  void start(std::int64_t slot, const Request& source);
  /// The sequence of slot `from` now stands in `to`.
  void move(std::int64_t from, std::int64_t to);
  /// scores: (k, vocab) of the slots `slots`. Returns the next token of each, remembered as seen;
  /// kNoToken where a score is NaN or infinite upwards, or none is finite.
  std::vector<std::int32_t> next(const at::Tensor& scores, std::span<const std::int64_t> slots);
  /// Of the same scores, before next(): whether each row's best token is the best by more than
  /// kClearMargin, penalties counted. False where a score is no number.
  std::vector<bool> are_clear(const at::Tensor& scores, std::span<const std::int64_t> slots);

 private:
  struct Row {
    GenerationSettings settings;
    std::uint64_t stream = 0;
    std::uint64_t step = 0;
  };
  /// As the requests ask for it; in float32 where a penalty counts.
  at::Tensor effective(const at::Tensor& scores, std::span<const std::int64_t> slots);
  at::Tensor penalised(const at::Tensor& scores, std::span<const std::int64_t> slots);
  /// Puts tokens that are drawn in place of the best ones: those of the rows `drawn` of `scores`.
  void draw(const at::Tensor& scores, std::span<const std::int64_t> slots,
            std::span<const std::int64_t> drawn, std::vector<std::int32_t>& tokens) const;
  void remember(std::span<const std::int64_t> slots, std::span<const std::int32_t> tokens);
  void ensure_seen();

  std::int64_t vocab_;
  at::Device device_;
  std::vector<Row> rows_;
  at::Tensor seen_;  // (slots, vocab) bool; undefined while nobody penalises
};

struct CandidateToken {
  float score = 0;
  std::int32_t token = 0;
};

/// The token that draw_token() draws, but for the rounding of `total`, from the best ones of a row
/// in any order; nothing where they do not tell. `total`: the sum of exp((score - best) /
/// temperature) over the whole row.
std::optional<std::int32_t> draw_among_best(std::vector<CandidateToken> best, double total,
                                            const GenerationSettings& settings, double uniform);

/// A token drawn from one row of scores, (vocab) float32; `uniform` in [0, 1).
std::int32_t draw_token(std::span<const float> scores, const GenerationSettings& settings,
                        double uniform);

}  // namespace evalcar::engine
