// The CUDA kernel behind swiglu(), free of libtorch so that nvcc compiles it in a second.
#pragma once

#include <cuda_runtime_api.h>

#include "evaluator/kernels/device_numbers.h"

namespace evalcar::kernels {

/// out = silu(left half of both) · right half, on device pointers; returns at once. both: (rows, 2
/// · width), out: (rows, width), contiguous; in vectors of 16 bytes where they lie at such
/// boundaries. What does not fit a grid is cudaErrorInvalidConfiguration. Compute capability 8.0 or
/// newer.
cudaError_t launch_swiglu(StoredType type, const void* both, void* out, std::int64_t rows,
                          std::int64_t width, cudaStream_t stream);

}  // namespace evalcar::kernels
