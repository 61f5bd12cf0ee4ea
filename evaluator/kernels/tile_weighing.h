// Scores of attention become weights: 2^(score - base), packed as rows for the tile unit, and each
// row's sum of them in 16 parts, which the caller sets to 0 before. To be compiled into a kernel,
// where it runs beside products (multiply_blocks()).
#pragma once

#if defined(__x86_64__)

#include <cstdint>

#include "evaluator/kernels/tile_terms.h"
#include "evaluator/kernels/tile_unit.h"

namespace evalcar::kernels {

/// A row of scores is `stride` floats. Goes 32 numbers of one row after those of another: what is
/// added to one row's sum has to wait for each other.
class Weighing {
 public:
  /// By little and little, in so many calls.
  EVALCAR_TILES EVALCAR_INLINE Weighing(const float* scores, std::int64_t stride, const float* base,
                                        std::int64_t rows, std::int64_t width, std::int64_t calls,
                                        char* weights, float* sums)
      : scores_(scores),
        stride_(stride),
        base_(base),
        rows_(rows),
        calls_(calls),
        weights_(weights),
        sums_(sums),
        share_(rows * (width / kTileStep)),
        left_(share_) {}

  EVALCAR_TILES EVALCAR_INLINE void operator()() {
    for (due_ += share_; due_ >= calls_; due_ -= calls_) {
      if (left_ > 0) weigh();
    }
  }
  EVALCAR_TILES EVALCAR_INLINE void finish() {
    while (left_ > 0) weigh();
  }

 private:
  EVALCAR_TILES EVALCAR_INLINE void weigh() {
    const float* const scores = scores_ + row_ * stride_;
    const __m512 base = _mm512_set1_ps(base_[row_]);
    const __m512 low = power_of_two(_mm512_sub_ps(_mm512_load_ps(scores), base));
    const __m512 high = power_of_two(_mm512_sub_ps(_mm512_load_ps(scores + 16), base));
    store_terms(positive_terms_in_turn(low, high), weights_ + row_ * 64);
    float* const sum = sums_ + row_ * 16;
    _mm512_store_ps(sum, _mm512_add_ps(_mm512_load_ps(sum), _mm512_add_ps(low, high)));
    --left_;
    if (++row_ < rows_) return;
    row_ = 0;
    scores_ += kTileStep;
    weights_ += kTerms * kTermBytes;
  }

  const float* scores_;  // of the 32 keys that are weighed
  std::int64_t stride_;
  const float* base_;
  std::int64_t rows_, calls_;
  char* weights_;
  float* sums_;
  std::int64_t share_, left_;  // of 32 numbers of a row each
  std::int64_t due_ = 0, row_ = 0;
};

}  // namespace evalcar::kernels

#endif
