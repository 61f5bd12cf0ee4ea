// The CUDA kernels behind decode_attention(), free of libtorch so that nvcc compiles them quickly.
#pragma once

#include <cuda_runtime_api.h>

#include "evaluator/kernels/device_numbers.h"

namespace evalcar::kernels {

struct KeyRange;

/// decode_attention_block.h's DecodeAttention on device pointers, of either type.
struct DecodeLaunch {
  StoredType type = StoredType::kFloat32;
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  std::int64_t slot_stride = 0, position_stride = 0, head_stride = 0;
  const KeyRange* seen = nullptr;
  std::int64_t rows = 0, heads = 0, kv_heads = 0, dim = 0;
  float scale = 0;
  std::int64_t splits = 0;
  void* out = nullptr;
  float* mixed = nullptr;  ///< with `largest` and `sums` null where no row has more than one split
  float* largest = nullptr;
  float* sums = nullptr;
};

/// Returns at once. `dim` is 64, 80, 96 or 128, and pointers and strides are at 16-byte boundaries,
/// else cudaErrorInvalidValue; what does not fit a grid is cudaErrorInvalidConfiguration. Compute
/// capability 8.0 or newer.
cudaError_t launch_decode_attention(const DecodeLaunch& launch, cudaStream_t stream);

}  // namespace evalcar::kernels
