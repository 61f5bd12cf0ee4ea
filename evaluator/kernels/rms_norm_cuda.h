// The CUDA kernel behind rms_norm(), free of libtorch so that nvcc compiles it in a second.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "evaluator/kernels/device_numbers.h"

namespace evalcar::kernels {

/// y = weight · cast(x / sqrt(mean(x²) + eps)) for contiguous rows, on device pointers; returns at
/// once. x, y: (rows, width); weight: (width). Compute capability 8.0 or newer.
cudaError_t launch_rms_norm(StoredType type, const void* x, const void* weight, void* y,
                            std::int64_t rows, std::int64_t width, float eps, cudaStream_t stream);

}  // namespace evalcar::kernels
