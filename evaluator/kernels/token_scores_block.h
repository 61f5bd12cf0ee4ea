// The best token of a row of scores, and the log-likelihood of given ones, out of blocks of the
// vocabulary: what a block of threads does, for the GPU and for a test without one. C++17, for
// nvcc.
//
// A row is cut into parts of kPartTokens, whatever the blocks are that the product comes in. A part
// leaves a TokenState; two states join into one, in a tree whose order is fixed, so a row's bits
// depend on its scores alone.
#pragma once

#include <cstdint>

#include "evaluator/kernels/device_numbers.h"
#include "evaluator/kernels/thread_block.h"

namespace evalcar::kernels {

constexpr int kTokenThreads = 128;
constexpr std::int64_t kPartTokens = 4096;
constexpr std::int32_t kNoTokenYet = INT32_MAX;

/// What is kept of some scores x: the best of them, and log(sum of e^x) as largest + log(sum).
struct TokenState {
  float best;
  std::int32_t token;  ///< of `best`
  float largest;       ///< no NaN counts; `sum` is NaN then
  float sum;           ///< of e^(x - largest); 0: of none
};

EVALCAR_ON_BOTH TokenState no_tokens() { return {-INFINITY, kNoTokenYet, -INFINITY, 0}; }

EVALCAR_ON_BOTH bool is_nan(float x) { return x != x; }

/// Whether score a of token i goes before score b of token j: a NaN before numbers, the larger, the
/// lower token where they are equal.
EVALCAR_ON_BOTH bool goes_before(float a, std::int32_t i, float b, std::int32_t j) {
  if (is_nan(a) != is_nan(b)) return is_nan(a);
  if (!is_nan(a) && a != b) return a > b;
  return i < j;
}

/// The scores of both.
EVALCAR_ON_BOTH TokenState joined(const TokenState& a, const TokenState& b) {
  TokenState both = goes_before(a.best, a.token, b.best, b.token) ? a : b;
  both.largest = larger(a.largest, b.largest);
  const float base = base_of(both.largest);
  both.sum = a.sum * exponential(a.largest - base) + b.sum * exponential(b.largest - base);
  return both;
}

/// Takes scores x[0 … count) of the tokens from `token` on.
template <int kCount>
EVALCAR_ON_BOTH void take_scores(TokenState& state, const float (&x)[kCount], int count,
                                 std::int32_t token) {
  float largest = state.largest;
  EVALCAR_UNROLL
  for (int e = 0; e < kCount; ++e) {
    if (e >= count) continue;
    largest = larger(largest, x[e]);
    if (!goes_before(x[e], token + e, state.best, state.token)) continue;
    state.best = x[e];
    state.token = token + e;
  }
  const float base = base_of(largest);
  float sum = state.sum * exponential(state.largest - base);
  EVALCAR_UNROLL
  for (int e = 0; e < kCount; ++e) {
    if (e < count) sum += exponential(x[e] - base);
  }
  state.largest = largest;
  state.sum = sum;
}

/// e^(x) over the sum of all, as a logarithm.
EVALCAR_ON_BOTH float log_likelihood(const TokenState& state, float score) {
#ifdef __CUDA_ARCH__
  return score - state.largest - logf(state.sum);
#else
  return score - state.largest - std::log(state.sum);
#endif
}

/// Scores of all rows for the tokens [first, first + tokens).
template <typename T>
struct ScoreBlock {
  const T* scores;  ///< (rows, tokens)
  std::int64_t stride, rows, tokens;
  std::int64_t first;  ///< a multiple of kPartTokens
  bool is_aligned;     ///< each row starts at a 16-byte boundary
};

EVALCAR_ON_BOTH std::int64_t parts_of(std::int64_t tokens) {
  return (tokens + kPartTokens - 1) / kPartTokens;
}

/// A thread's register: nothing.
struct TokenOwn {};

/// shared[0] becomes the join of all kTokenThreads of shared.
template <typename Block>
EVALCAR_DEVICE void join_threads(Block& block, TokenState* shared) {
  for (int apart = kTokenThreads / 2; apart > 0; apart /= 2) {
    block.each_thread([&](int thread, TokenOwn&) {
      if (thread < apart) shared[thread] = joined(shared[thread], shared[thread + apart]);
    });
  }
}

/// Part `part` of the block's tokens, of one row, to `to`. shared: (kTokenThreads).
template <typename T, typename Block>
EVALCAR_DEVICE void reduce_part(const ScoreBlock<T>& s, std::int64_t row, std::int64_t part,
                                TokenState* to, Block& block, TokenState* shared) {
  const std::int64_t begin = part * kPartTokens;
  const std::int64_t end = begin + kPartTokens < s.tokens ? begin + kPartTokens : s.tokens;
  const T* const scores = s.scores + row * s.stride;
  block.each_thread([&](int thread, TokenOwn&) {
    TokenState state = no_tokens();
    for (std::int64_t at = begin + thread * kVector<T>; at < end;
         at += kTokenThreads * kVector<T>) {
      const int count = static_cast<int>(end - at < kVector<T> ? end - at : kVector<T>);
      float x[kVector<T>] = {};
      if (s.is_aligned && count == kVector<T>) {
        load_vector(scores + at, x);
      } else {
        EVALCAR_UNROLL
        for (int e = 0; e < kVector<T>; ++e) {
          if (e < count) x[e] = widen(scores[at + e]);
        }
      }
      take_scores(state, x, count, static_cast<std::int32_t>(s.first + at));
    }
    shared[thread] = state;
  });
  join_threads(block, shared);
  block.each_thread([&](int thread, TokenOwn&) {
    if (thread == 0) *to = shared[0];
  });
}

/// The parts of a row to one. shared: (kTokenThreads).
template <typename Block>
EVALCAR_DEVICE void join_parts(const TokenState* parts, std::int64_t count, TokenState* to,
                               Block& block, TokenState* shared) {
  block.each_thread([&](int thread, TokenOwn&) {
    TokenState state = no_tokens();
    for (std::int64_t part = thread; part < count; part += kTokenThreads)
      state = joined(state, parts[part]);
    shared[thread] = state;
  });
  join_threads(block, shared);
  block.each_thread([&](int thread, TokenOwn&) {
    if (thread == 0) *to = shared[0];
  });
}

/// The score of `token` of a row to `to`, if it is in the block.
template <typename T>
EVALCAR_ON_BOTH void pick_score(const ScoreBlock<T>& s, std::int64_t row, std::int64_t token,
                                float* to) {
  if (token >= s.first && token < s.first + s.tokens)
    *to = widen(s.scores[row * s.stride + token - s.first]);
}

}  // namespace evalcar::kernels
