#include "evaluator/kernels/token_scores.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/log_softmax.h>

#ifdef EVALCAR_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <limits>

#include "evaluator/kernels/token_scores_block.h"
#include "evaluator/kernels/token_scores_cuda.h"
#endif

namespace evalcar::kernels {

#ifdef EVALCAR_CUDA
namespace {

constexpr std::int64_t kScoresAtOnce = std::int64_t{1} << 24;
constexpr std::int64_t kLeastTokensAtOnce = 2 * kPartTokens;

/// The states of some rows, while blocks of their scores come.
class Reduction {
 public:
  Reduction(std::int64_t rows, std::int64_t vocab, at::Device device)
      : rows_(rows),
        parts_of_row_(parts_of(vocab)),
        stream_(at::cuda::getCurrentCUDAStream(device.index())),
        options_(at::TensorOptions().device(device)),
        states_(at::empty({rows * (parts_of_row_ + 1), sizeof(TokenState)},
                          options_.dtype(at::kByte))) {}

  /// scores: (rows, tokens) of the tokens from `first` on.
  void take(const at::Tensor& scores, std::int64_t first, const AskedLaunch& asked) {
    const ScoreLaunch block{
        .type = scores.scalar_type() == at::kFloat ? StoredType::kFloat32 : StoredType::kBFloat16,
        .scores = scores.const_data_ptr(),
        .stride = scores.stride(0),
        .rows = rows_,
        .tokens = scores.size(1),
        .first = first};
    C10_CUDA_CHECK(launch_reduce_parts(block, parts(), parts_of_row_, stream_));
    C10_CUDA_CHECK(launch_pick_scores(block, asked, stream_));
  }
  BestTokens finish(const AskedLaunch& asked) {
    BestTokens best{at::empty({rows_}, options_.dtype(at::kLong)),
                    at::empty({rows_}, options_.dtype(at::kFloat))};
    TokenState* const of_rows = parts() + rows_ * parts_of_row_;
    C10_CUDA_CHECK(launch_join_parts(parts(), parts_of_row_, rows_, of_rows,
                                     best.tokens.mutable_data_ptr<std::int64_t>(),
                                     best.scores.mutable_data_ptr<float>(), stream_));
    C10_CUDA_CHECK(launch_log_likelihoods(of_rows, asked, stream_));
    return best;
  }

 private:
  TokenState* parts() { return static_cast<TokenState*>(states_.mutable_data_ptr()); }

  std::int64_t rows_;
  std::int64_t parts_of_row_;
  cudaStream_t stream_;
  at::TensorOptions options_;
  at::Tensor states_;  // of each part of each row, then of each row
};

LinearWeights outputs_of(const LinearWeights& head, std::int64_t first, std::int64_t count) {
  const auto part = [&](const at::Tensor& x) {
    return x.defined() ? x.narrow(0, first, count) : at::Tensor();
  };
  return {part(head.weight), part(head.bias), part(head.half)};
}

TokenScores score_by_kernel(const at::Tensor& hidden, const LinearWeights& head,
                            const AskedTokens& asked) {
  const c10::cuda::CUDAGuard guard(hidden.device());  // a launch goes to the current device
  const std::int64_t rows = hidden.size(0), vocab = head.weight.size(0);
  const at::Tensor wanted_rows = asked.rows.contiguous(), tokens = asked.tokens.contiguous();
  // A token of none of the blocks would stay no number.
  const at::Tensor picked = at::full({tokens.numel()}, std::numeric_limits<double>::quiet_NaN(),
                                     at::TensorOptions().device(hidden.device()).dtype(at::kFloat));
  const AskedLaunch launch{.rows = wanted_rows.const_data_ptr<std::int64_t>(),
                           .tokens = tokens.const_data_ptr<std::int64_t>(),
                           .scores = picked.mutable_data_ptr<float>(),
                           .count = tokens.numel()};
  const std::int64_t fitting = kScoresAtOnce / std::max<std::int64_t>(1, rows);
  const std::int64_t at_once = std::max(kLeastTokensAtOnce, fitting / kPartTokens * kPartTokens);
  Reduction reduction(rows, vocab, hidden.device());
  for (std::int64_t first = 0; first < vocab; first += at_once) {
    const LinearWeights part = outputs_of(head, first, std::min(at_once, vocab - first));
    reduction.take(linear(hidden, part), first, launch);
  }
  const BestTokens best = reduction.finish(launch);
  return {best, picked};
}

}  // namespace

bool has_token_kernel(const at::Tensor& like) {
  const bool type = like.scalar_type() == at::kFloat || like.scalar_type() == at::kBFloat16;
  return like.is_cuda() && type && at::cuda::getDeviceProperties(like.get_device())->major >= 8;
}

#else

bool has_token_kernel(const at::Tensor&) { return false; }

#endif

BestTokens best_tokens(const at::Tensor& scores) {
#ifdef EVALCAR_CUDA
  if (has_token_kernel(scores) && scores.dim() == 2 && scores.stride(1) == 1) {
    const c10::cuda::CUDAGuard guard(scores.device());
    Reduction reduction(scores.size(0), scores.size(1), scores.device());
    reduction.take(scores, 0, {});
    return reduction.finish({});
  }
#endif
  return best_tokens_reference(scores);
}

BestTokens best_tokens_reference(const at::Tensor& scores) {
  const at::Tensor tokens = scores.argmax(1);
  return {tokens, scores.gather(1, tokens.unsqueeze(1)).squeeze(1).to(at::kFloat)};
}

TokenScores score_tokens(const at::Tensor& hidden, const LinearWeights& head,
                         const AskedTokens& asked) {
#ifdef EVALCAR_CUDA
  if (has_token_kernel(hidden) && head.weight.size(0) <= INT32_MAX)
    return score_by_kernel(hidden, head, asked);
#endif
  return score_tokens_reference(hidden, head, asked);
}

TokenScores score_tokens_reference(const at::Tensor& hidden, const LinearWeights& head,
                                   const AskedTokens& asked) {
  const at::Tensor scores = linear(hidden, head).to(at::kFloat);  // (rows, vocab)
  const at::Tensor places = asked.rows * scores.size(1) + asked.tokens;
  return {best_tokens_reference(scores),
          at::log_softmax(scores, 1).view({-1}).index_select(0, places)};
}

}  // namespace evalcar::kernels
