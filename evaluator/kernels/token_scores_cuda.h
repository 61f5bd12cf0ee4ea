// The CUDA kernels behind score_tokens() and best_tokens(), free of libtorch so that nvcc compiles
// them quickly. All return at once; what does not fit a grid is cudaErrorInvalidConfiguration.
// Compute capability 8.0 or newer.
#pragma once

#include <cuda_runtime_api.h>

#include "evaluator/kernels/device_numbers.h"

namespace evalcar::kernels {

struct TokenState;

/// Scores of all rows for the tokens [first, first + tokens), on the device.
struct ScoreLaunch {
  StoredType type = StoredType::kFloat32;
  const void* scores = nullptr;  ///< (rows, tokens)
  std::int64_t stride = 0, rows = 0, tokens = 0;
  std::int64_t first = 0;  ///< a multiple of kPartTokens
};

/// Given tokens: their rows, and what becomes of each.
struct AskedLaunch {
  const std::int64_t* rows = nullptr;    ///< (count)
  const std::int64_t* tokens = nullptr;  ///< (count)
  float* scores = nullptr;               ///< (count)
  std::int64_t count = 0;
};

/// The parts of a block to their places in `parts`: (rows, parts_of_row).
cudaError_t launch_reduce_parts(const ScoreLaunch& block, TokenState* parts,
                                std::int64_t parts_of_row, cudaStream_t stream);
/// The scores of the asked tokens that are in the block.
cudaError_t launch_pick_scores(const ScoreLaunch& block, const AskedLaunch& asked,
                               cudaStream_t stream);
/// All parts of each row to `states`: (rows), and its best token and score: (rows) each.
cudaError_t launch_join_parts(const TokenState* parts, std::int64_t parts_of_row, std::int64_t rows,
                              TokenState* states, std::int64_t* best, float* best_score,
                              cudaStream_t stream);
/// In place of the asked tokens' scores their log-likelihoods.
cudaError_t launch_log_likelihoods(const TokenState* states, const AskedLaunch& asked,
                                   cudaStream_t stream);

}  // namespace evalcar::kernels
