// One block per row: the sum of squares is reduced through warps in a fixed order (same bits every
// run), then the row is read again and scaled. The row comes from L2 the second time. The five ATen
// operations that this replaces read and write the row five times.
#include "evaluator/kernels/rms_norm_cuda.h"

#include "evaluator/kernels/device_numbers.h"

namespace evalcar::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;

// The sum over the block's threads, given to all of them.
__device__ float block_sum(float value) {
  __shared__ float partial[kThreads / kWarp];
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    value += __shfl_down_sync(0xffffffffu, value, offset);
  if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = value;
  __syncthreads();
  float total = 0;
  for (int warp = 0; warp < kThreads / kWarp; ++warp) total += partial[warp];
  return total;
}

template <typename T>
__global__ void rms_norm_kernel(const T* x, const T* weight, T* y, std::int64_t width, float eps) {
  const T* row = x + blockIdx.x * width;
  T* out = y + blockIdx.x * width;
  float squares = 0;
  for (std::int64_t i = threadIdx.x; i < width; i += kThreads) {
    const float value = widen(row[i]);
    squares += value * value;
  }
  const float scale = rsqrtf(block_sum(squares) / static_cast<float>(width) + eps);
  for (std::int64_t i = threadIdx.x; i < width; i += kThreads) {
    // Rounded to T before the weight multiplies it, as the reference does.
    const T unit = narrow<T>(widen(row[i]) * scale);
    out[i] = narrow<T>(widen(unit) * widen(weight[i]));
  }
}

}  // namespace

cudaError_t launch_rms_norm(StoredType type, const void* x, const void* weight, void* y,
                            std::int64_t rows, std::int64_t width, float eps, cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(rows));
  if (type == StoredType::kFloat32) {
    rms_norm_kernel<<<grid, kThreads, 0, stream>>>(static_cast<const float*>(x),
                                                   static_cast<const float*>(weight),
                                                   static_cast<float*>(y), width, eps);
  } else {
    rms_norm_kernel<<<grid, kThreads, 0, stream>>>(static_cast<const BFloat16*>(x),
                                                   static_cast<const BFloat16*>(weight),
                                                   static_cast<BFloat16*>(y), width, eps);
  }
  return cudaGetLastError();
}

}  // namespace evalcar::kernels
