// The CUDA kernel behind window_attention(), free of libtorch so that nvcc compiles it quickly.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace evalcar::kernels {

/// window_attention_block.h's WindowAttention on device pointers.
struct WindowLaunch {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  std::int64_t q_stride = 0, k_stride = 0, v_stride = 0;
  const std::int32_t* begins = nullptr;
  std::int64_t windows = 0, heads = 0, dim = 0;
  float scale = 0;
  void* out = nullptr;
};

/// Returns at once. `dim` is 64 or 80, and pointers and strides are at 16-byte boundaries,
/// else cudaErrorInvalidValue; what does not fit a grid is cudaErrorInvalidConfiguration. Compute
/// capability 8.0 or newer.
cudaError_t launch_window_attention(const WindowLaunch& launch, cudaStream_t stream);

}  // namespace evalcar::kernels
