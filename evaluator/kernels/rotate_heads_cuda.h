// The CUDA kernel behind rotate_heads(), free of libtorch so that nvcc compiles it in a second.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "evaluator/kernels/device_numbers.h"

namespace evalcar::kernels {

/// Heads to turn, on device pointers; strides count elements. All vectors of 16 bytes lie at their
/// boundaries, and `half` is a whole number of them.
struct RotateLaunch {
  const void* x = nullptr;  ///< (rows, heads, 2 · half)
  std::int64_t row_stride = 0;
  std::int64_t head_stride = 0;
  const float* cos = nullptr;  ///< (rows, half)
  const float* sin = nullptr;
  void* y = nullptr;  ///< (rows, heads, 2 · half), contiguous
  std::int64_t rows = 0;
  std::int64_t heads = 0;
  std::int64_t half = 0;
};

/// Returns at once. x and y are of `type`. Compute capability 8.0 or newer.
cudaError_t launch_rotate_heads(StoredType type, const RotateLaunch& launch, cudaStream_t stream);

}  // namespace evalcar::kernels
