// What stands between a decoder's fused projection and its attention, in one pass: the norm over
// each query and key head, the rotary turn (Su et al. 2021, in the half-split form), and the
// writing of keys and values to the slot cache.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace evalcar::kernels {

/// New rows of any sequences.
struct PackedHeads {
  at::Tensor qkv;     ///< (rows, heads + 2 · kv_heads, dim): queries, keys, values
  at::Tensor q_norm;  ///< (dim): the weight of an RMSNorm over each head; undefined: no norm
  at::Tensor k_norm;
  double eps = 0;  ///< of the norms
  at::Tensor cos;  ///< (rows, 1, dim/2): what the pairs (x_i, x_{i+dim/2}) are turned by
  at::Tensor sin;
  std::int64_t heads = 0;  ///< query heads
};

/// Where they go in a layer of the cache.
struct CachePlace {
  at::Tensor slots;   ///< (rows) int64 on the device
  at::Tensor places;  ///< (rows) int64 on the device: positions in the slots; no place twice
  at::Tensor keys;    ///< (slots, capacity, kv_heads, dim)
  at::Tensor values;
};

/// Whether a kernel can do it: all float32 on the CPU; or all float32 or all bfloat16 on a GPU of
/// compute capability 8.0 or newer, halves of heads in whole vectors of 16 bytes at their
/// boundaries, at most 512 bytes.
bool has_place_kernel(const PackedHeads& heads, const CachePlace& place);

/// Writes the keys, normed and turned, and the values to the cache; returns the queries, normed and
/// turned: (rows, heads, dim). Where has_place_kernel(). On a GPU each operation is rounded to the
/// dtype as ATen's are, so without norms the bits are the reference's; on the CPU products and sums
/// may be fused. Of no row do they depend on the others. May throw c10::Error.
at::Tensor place_heads(const PackedHeads& heads, const CachePlace& place);

/// The same by ATen operations, on every device.
at::Tensor place_heads_reference(const PackedHeads& heads, const CachePlace& place);

}  // namespace evalcar::kernels
