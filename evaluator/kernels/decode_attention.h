// Attention of one new row of each slot of the cache on a GPU, as decoding asks for it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "evaluator/kernels/seen_keys.h"

namespace evalcar::kernels {

/// Which keys the rows of a batch see, made once and used in every layer.
struct DecodeSight {
  at::Tensor ranges;           ///< (rows, 2) int64 on the device: begin and end
  std::int64_t most_keys = 0;  ///< that a row sees
};

/// `seen`: [begin, end) of each row, at least one key; nothing shared.
DecodeSight decode_sight(std::span<const SeenKeys> seen, at::Device device);

/// Whether the kernel can read such a layer of a cache: (slots, capacity, kv_heads, dim) float32 or
/// bfloat16 on a GPU of compute capability 8.0 or newer, dim 64, 80, 96 or 128, contiguous but for
/// the first axis, at 16-byte boundaries.
bool has_decode_kernel(const at::Tensor& keys);

/// softmax(q kᵀ / sqrt(dim)) v, row i over slot i, where has_decode_kernel(). q: (rows, heads,
/// dim), of the cache's dtype; keys, values: (slots, capacity, kv_heads, dim), of the same strides.
/// Products are added up in float32. In bfloat16 a power counts with 16 bits, and of a key that
/// counts with fewer an infinite value gives NaN. Of no row do the bits depend on the other rows.
/// Returns (rows, heads, dim) at once. May throw c10::Error.
at::Tensor decode_attention(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                            const DecodeSight& sight);

/// The same by ATen operations in float32, row by row, on every device.
at::Tensor decode_attention_reference(const at::Tensor& q, const at::Tensor& keys,
                                      const at::Tensor& values, std::span<const SeenKeys> seen);

}  // namespace evalcar::kernels
