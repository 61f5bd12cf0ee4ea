// Attention over packed rows by a kernel of our own, where the CPU has a unit that is worth it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "evaluator/kernels/seen_keys.h"

namespace evalcar::kernels {

/// The rows of one sequence over its keys. All float32 on the CPU; the last axis is contiguous.
struct AttentionRows {
  at::Tensor q;    ///< (rows, heads, dim)
  at::Tensor k;    ///< (keys, kv_heads, dim): head h of q reads head h · kv_heads / heads
  at::Tensor v;    ///< (keys, kv_heads, dim)
  at::Tensor out;  ///< (rows, heads, dim): where the result goes
  std::span<const SeenKeys> seen = {};  ///< of each row; empty: each row sees all keys
};

/// Whether attend() can be used for such tensors: float32 on a CPU with a tile unit, or AVX2.
bool has_attention_kernel(const at::Tensor& like);

/// softmax(q kᵀ / sqrt(dim)) v for all `sequences`, which share the threads. A row's bits depend
/// neither on the other sequences nor on the threads. Any thread. May throw c10::Error.
void attend(std::span<const AttentionRows> sequences);

/// The same for one row of each of the slots 0, 1, … of a cache, on any CPU. q: (slots, heads,
/// dim); keys, values: (slots or more, capacity, kv_heads, dim), all float32 on the CPU, contiguous
/// but for the first axis. seen: [begin, end) of each row. Returns (slots, heads, dim).
at::Tensor attend_slots(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                        std::span<const SeenKeys> seen);

}  // namespace evalcar::kernels
