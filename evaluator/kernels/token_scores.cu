// The grids of token_scores_block.h: a block for each part of each row, a block for each row, and a
// thread for each token that is asked for.
#include "evaluator/kernels/kernel_launch.h"
#include "evaluator/kernels/token_scores_block.h"
#include "evaluator/kernels/token_scores_cuda.h"

namespace evalcar::kernels {
namespace {

constexpr std::int64_t kMostOfGrid = 65535;  // along y

std::int64_t blocks_of(std::int64_t threads) {
  return (threads + kTokenThreads - 1) / kTokenThreads;
}

__device__ std::int64_t thread_of_grid() {
  return static_cast<std::int64_t>(blockIdx.x) * kTokenThreads +
         static_cast<std::int64_t>(threadIdx.x);
}

template <typename T>
__global__ void __launch_bounds__(kTokenThreads)
    reduce_kernel(const ScoreBlock<T> s, TokenState* parts, std::int64_t parts_of_row) {
  let_next_kernel_begin();
  wait_for_earlier_kernels();
  __shared__ TokenState shared[kTokenThreads];
  DeviceBlock<TokenOwn> block;
  const std::int64_t row = blockIdx.x, part = blockIdx.y;
  reduce_part(s, row, part, parts + row * parts_of_row + s.first / kPartTokens + part, block,
              shared);
}

template <typename T>
__global__ void __launch_bounds__(kTokenThreads)
    pick_kernel(const ScoreBlock<T> s, const AskedLaunch asked) {
  let_next_kernel_begin();
  wait_for_earlier_kernels();
  const std::int64_t i = thread_of_grid();
  if (i < asked.count) pick_score(s, asked.rows[i], asked.tokens[i], asked.scores + i);
}

__global__ void __launch_bounds__(kTokenThreads)
    join_kernel(const TokenState* parts, std::int64_t parts_of_row, TokenState* states,
                std::int64_t* best, float* best_score) {
  let_next_kernel_begin();
  wait_for_earlier_kernels();
  __shared__ TokenState shared[kTokenThreads];
  DeviceBlock<TokenOwn> block;
  const std::int64_t row = blockIdx.x;
  join_parts(parts + row * parts_of_row, parts_of_row, states + row, block, shared);
  if (threadIdx.x != 0) return;
  best[row] = shared[0].token;
  best_score[row] = shared[0].best;
}

__global__ void __launch_bounds__(kTokenThreads)
    likelihood_kernel(const TokenState* states, const AskedLaunch asked) {
  let_next_kernel_begin();
  wait_for_earlier_kernels();
  const std::int64_t i = thread_of_grid();
  if (i < asked.count) asked.scores[i] = log_likelihood(states[asked.rows[i]], asked.scores[i]);
}

template <typename T>
ScoreBlock<T> score_block(const ScoreLaunch& l) {
  const bool is_aligned = is_at_boundary(l.scores) && l.stride % kVector<T> == 0;
  return {static_cast<const T*>(l.scores), l.stride, l.rows, l.tokens, l.first, is_aligned};
}

}  // namespace

cudaError_t launch_reduce_parts(const ScoreLaunch& l, TokenState* parts, std::int64_t parts_of_row,
                                cudaStream_t stream) {
  if (l.rows == 0 || l.tokens == 0) return cudaSuccess;
  if (l.first % kPartTokens != 0) return cudaErrorInvalidValue;
  if (l.rows > INT32_MAX || parts_of(l.tokens) > kMostOfGrid || l.first + l.tokens > INT32_MAX)
    return cudaErrorInvalidConfiguration;
  const dim3 grid(static_cast<unsigned>(l.rows), static_cast<unsigned>(parts_of(l.tokens)));
  if (l.type == StoredType::kFloat32)
    return launch(reduce_kernel<float>, grid, kTokenThreads, stream, score_block<float>(l), parts,
                  parts_of_row);
  return launch(reduce_kernel<BFloat16>, grid, kTokenThreads, stream, score_block<BFloat16>(l),
                parts, parts_of_row);
}

cudaError_t launch_pick_scores(const ScoreLaunch& l, const AskedLaunch& asked,
                               cudaStream_t stream) {
  if (asked.count == 0) return cudaSuccess;
  if (blocks_of(asked.count) > INT32_MAX) return cudaErrorInvalidConfiguration;
  const dim3 grid(static_cast<unsigned>(blocks_of(asked.count)));
  if (l.type == StoredType::kFloat32)
    return launch(pick_kernel<float>, grid, kTokenThreads, stream, score_block<float>(l), asked);
  return launch(pick_kernel<BFloat16>, grid, kTokenThreads, stream, score_block<BFloat16>(l),
                asked);
}

cudaError_t launch_join_parts(const TokenState* parts, std::int64_t parts_of_row, std::int64_t rows,
                              TokenState* states, std::int64_t* best, float* best_score,
                              cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  if (rows > INT32_MAX) return cudaErrorInvalidConfiguration;
  return launch(join_kernel, static_cast<unsigned>(rows), kTokenThreads, stream, parts,
                parts_of_row, states, best, best_score);
}

cudaError_t launch_log_likelihoods(const TokenState* states, const AskedLaunch& asked,
                                   cudaStream_t stream) {
  if (asked.count == 0) return cudaSuccess;
  if (blocks_of(asked.count) > INT32_MAX) return cudaErrorInvalidConfiguration;
  return launch(likelihood_kernel, static_cast<unsigned>(blocks_of(asked.count)), kTokenThreads,
                stream, states, asked);
}

}  // namespace evalcar::kernels
