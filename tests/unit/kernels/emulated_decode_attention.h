// decode_attention() as its kernels compute it, on the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "evaluator/kernels/seen_keys.h"
#include "tests/unit/kernels/emulated_block.h"

namespace evalcar::testing {

/// The blocks of the grid run one after the other; tensors are on the CPU, float32 or bfloat16.
at::Tensor emulated_decode_attention(const at::Tensor& q, const at::Tensor& keys,
                                     const at::Tensor& values,
                                     std::span<const kernels::SeenKeys> seen,
                                     ThreadOrder order = ThreadOrder::kForwards);

}  // namespace evalcar::testing
