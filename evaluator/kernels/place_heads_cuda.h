// The CUDA kernel behind place_heads(), free of libtorch so that nvcc compiles it quickly.
#pragma once

#include <cuda_runtime_api.h>

#include "evaluator/kernels/device_numbers.h"

namespace evalcar::kernels {

/// place_heads_block.h's PlaceHeads on device pointers, of either type.
struct PlaceLaunch {
  StoredType type = StoredType::kFloat32;
  const void* qkv = nullptr;
  const void* q_norm = nullptr;
  const void* k_norm = nullptr;
  float eps = 0;
  const void* cos = nullptr;
  const void* sin = nullptr;
  const std::int64_t* slots = nullptr;
  const std::int64_t* places = nullptr;
  std::int64_t rows = 0, heads = 0, kv_heads = 0, half = 0;
  void* q = nullptr;
  void* keys = nullptr;
  void* values = nullptr;
  std::int64_t slot_stride = 0, position_stride = 0, head_stride = 0;
};

constexpr std::int64_t kMostHalfOfHead = 512;  ///< bytes

/// Returns at once. Pointers, strides and half a head, of at most kMostHalfOfHead, are at 16-byte
/// boundaries, else cudaErrorInvalidValue; what does not fit a grid is
/// cudaErrorInvalidConfiguration. Compute capability 8.0 or newer.
cudaError_t launch_place_heads(const PlaceLaunch& launch, cudaStream_t stream);

}  // namespace evalcar::kernels
