// Attention inside the windows of a vision tower on a GPU: all windows of a batch in one call.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace evalcar::kernels {

/// Where the windows of a batch lie: each ends where the next one begins. Made once a batch.
struct Windows {
  at::Tensor begins;      ///< (windows + 1) int32, on the device
  std::int64_t most = 0;  ///< rows that the largest one has
};
/// `begins`: of each window its first row, and where the last one ends; ascending.
Windows windows_at(std::span<const std::int64_t> begins, at::Device device);

/// Whether the kernel can do it: bfloat16 on a GPU of compute capability 8.0 or newer, heads of 64
/// or 80 numbers that lie one behind the other at 16-byte boundaries, windows of at most 64
/// rows.
bool has_window_kernel(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const Windows& windows);

/// softmax(q kᵀ / √dim) v of each row over the rows of its window. q, k, v: (rows, heads, dim).
/// `out`, (rows, heads · dim) contiguous, is written. Sums are float32, a power counts with the 8
/// bits of a bfloat16; the bits of a window do not depend on the others. May throw c10::Error.
void window_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const Windows& windows, const at::Tensor& out);

/// The same by ATen operations in float32, on any device and in any dtype.
void window_attention_reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                std::span<const std::int64_t> begins, const at::Tensor& out);

}  // namespace evalcar::kernels
