// W + s·B·A, as PEFT's merge_and_unload computes it on a CPU, box by box in bounded memory.
//
// Arithmetic, read in peft 0.21.2 (tuners/lora/layer.py, get_delta_weight and merge) and measured
// with torch 2.11: adapters are loaded as float32 (float64 over a float64 base), B·A is a matrix
// product of them, the product is multiplied by the scale rounded to that type, and the sum with W
// is rounded once to W's type (an embedding's update is rounded to W's type before it is added).
// MKL's product is one chain of fused multiply-adds per element, k rising from 0, for r up to 384;
// this code computes the same chain, so the results have the same bits there. Above 384, and where
// out or in is 1, MKL sums in another order: each element then differs by at most
// 2·r·2⁻²⁴·s·Σ|B[i,k]·A[k,j]| before the last rounding.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "store/base/result.h"
#include "store/checkpoint/plan.h"

namespace evalcar::checkpoint {

/// Reads a box of one of the two factors.
using BoxReader =
    std::function<Status(const TensorPlan& tensor, const Box& box, std::span<std::byte> out)>;

/// Whether the update fits the tensor: dtypes that can be computed with, shapes as LowRankUpdate
/// says, a finite scale. What is wrong, in words; empty if nothing is.
std::string low_rank_mismatch(const TensorPlan& tensor, const LowRankUpdate& update);

/// Adds the update of `tensor` to `values`: the elements of `box` in tensor.dtype, contiguous and
/// row-major. The update fits (low_rank_mismatch). Memory: 12 MiB beside what `read` takes.
Status add_low_rank(const TensorPlan& tensor, const Box& box, const BoxReader& read,
                    std::span<std::byte> values);

}  // namespace evalcar::checkpoint
