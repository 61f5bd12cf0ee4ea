// What is asked of a head's scores, without keeping them: each row's best token, and the
// log-likelihoods of given tokens.
#pragma once

#include <ATen/core/Tensor.h>

#include "evaluator/kernels/linear.h"

namespace evalcar::kernels {

struct BestTokens {
  at::Tensor tokens;  ///< (rows) int64: of the largest score, the lowest of equal ones
  at::Tensor scores;  ///< (rows) float32: that score; NaN where a score of the row is
};

struct TokenScores {
  BestTokens best;
  at::Tensor log_likelihoods;  ///< (asked) float32; NaN or infinite where the scores are no numbers
};

/// Tokens whose log-likelihoods are wanted.
struct AskedTokens {
  at::Tensor rows;    ///< (asked) int64 on the device
  at::Tensor tokens;  ///< (asked) int64 on the device, each below the vocabulary's size
};

/// Whether there is a kernel for scores like these: float32 or bfloat16 on a GPU of compute
/// capability 8.0 or newer.
bool has_token_kernel(const at::Tensor& like);

/// Of scores (rows, vocab). By the kernel where there is one.
BestTokens best_tokens(const at::Tensor& scores);
BestTokens best_tokens_reference(const at::Tensor& scores);

/// Of linear(hidden, head), which is computed in blocks of the vocabulary where there is a kernel:
/// 2^24 scores at once, or 8192 of each row. log_softmax is float32, over scores that were rounded
/// to hidden's dtype. hidden: (rows, width). Of no row do the bits depend on the others, but for
/// what the product's do. May throw c10::Error.
TokenScores score_tokens(const at::Tensor& hidden, const LinearWeights& head,
                         const AskedTokens& asked);
/// All scores at once, by ATen operations.
TokenScores score_tokens_reference(const at::Tensor& hidden, const LinearWeights& head,
                                   const AskedTokens& asked);

}  // namespace evalcar::kernels
