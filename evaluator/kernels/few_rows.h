// A linear layer of a few rows on a GPU, at the speed at which the matrix is read.
#pragma once

#include <ATen/core/Tensor.h>

#include "evaluator/kernels/few_rows_block.h"
#include "evaluator/kernels/linear.h"

namespace evalcar::kernels {

/// Whether the kernel takes such rows: x (1 to kMostFewRows, width), contiguous, float32 or
/// bfloat16 as the weights are, on a GPU of compute capability 8.0 or newer, whole vectors at
/// 16-byte boundaries.
bool has_few_rows_kernel(const at::Tensor& x, const LinearWeights& weights);

/// What linear(), add_linear() and gated_linear() give, where has_few_rows_kernel(): sums in
/// float32, rounded once, gated ones where the operations would. y: (rows, outputs), contiguous; of
/// kGated half as many. Of no row do the bits depend on the others. May throw c10::Error.
void multiply_few_rows(const at::Tensor& x, const LinearWeights& weights, RowsResult result,
                       const at::Tensor& y);

}  // namespace evalcar::kernels
