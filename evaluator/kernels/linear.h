// A linear layer for whatever number of rows: kernels of our own for a few of them (decoding), on
// the CPU and on a GPU (few_rows.h), and on many CPUs for many (prefill: many_rows.h); else
// libtorch's.
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
/// the kernels runs depends on the number of rows; with each of our own, a row's result does not
/// depend on the others, nor on the number of threads. Any thread. May throw c10::Error.
at::Tensor linear(const at::Tensor& x, const LinearWeights& weights);

/// y += linear(x, weights), in place.
void add_linear(at::Tensor& y, const at::Tensor& x, const LinearWeights& weights);

/// SwiGLU: silu(gate) · up, of which linear(x, weights) is the two halves, the gate first.
at::Tensor gated_linear(const at::Tensor& x, const LinearWeights& weights);

/// Up to so many rows in float32 on the CPU one kernel is used, whatever the weights' dtype: a row
/// has the same bits in any company. 0: there is none.
std::int64_t rows_of_one_kernel();

/// libtorch's: the references.
at::Tensor linear_reference(const at::Tensor& x, const LinearWeights& weights);
at::Tensor gated_linear_reference(const at::Tensor& x, const LinearWeights& weights);

}  // namespace evalcar::kernels
