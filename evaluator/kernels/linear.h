// A linear layer for whatever number of rows: a kernel of our own for a few of them on the CPU
// (decoding), libtorch's for many (prefill) and on a GPU.
#pragma once

#include <ATen/core/Tensor.h>

namespace evalcar::kernels {

struct LinearWeights {
  at::Tensor weight;  ///< (outputs, width), contiguous
  at::Tensor bias;    ///< (outputs), or undefined
  /// (outputs, width) bfloat16: the same values in half the bytes; undefined where they are no
  /// bfloat16 numbers, or where this is of no use.
  at::Tensor half;
};

/// x · weightᵀ + bias: (rows, width) to (rows, outputs), in x's dtype, which is weight's. Which of
/// the two kernels runs depends on the number of rows; with a few, a row's result does not depend
/// on the others, nor on the number of threads. Any thread. May throw c10::Error.
at::Tensor linear(const at::Tensor& x, const LinearWeights& weights);

/// libtorch's: the reference.
at::Tensor linear_reference(const at::Tensor& x, const LinearWeights& weights);

}  // namespace evalcar::kernels
