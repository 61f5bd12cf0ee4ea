// How the kernels of this folder follow one another: the blocks of the next one take their places
// while the one before still runs, and wait there until it has ended. Without this a card of 4 TB/s
// stands still between two kernels for as long as it takes to read some megabytes. C++17, for nvcc.
// (CUDA C++ Programming Guide, "Programmatic Dependent Launch"; compute capability 9.0.)
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>

namespace evalcar::kernels {

/// Each kernel that launch() starts calls this first, in every thread, before it reads what an
/// earlier kernel may have written and before it writes anything: when it returns, all earlier
/// kernels of the stream have ended and what they wrote is seen. What nothing in the stream writes,
/// weights, may be asked for before.
__device__ __forceinline__ void wait_for_earlier_kernels() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// From when all blocks have called this, or ended, those of the next kernel may take the places
/// that are left.
__device__ __forceinline__ void let_next_kernel_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/// Whether `device` lets a kernel begin early; asked of the driver once.
inline cudaError_t begins_early(int device, bool& early) {
  static std::atomic<signed char> known[64] = {};  // 0: not asked yet
  const bool is_kept = device < 64;
  signed char answer = is_kept ? known[device].load(std::memory_order_relaxed) : 0;
  if (answer == 0) {
    int major = 0;
    const cudaError_t status =
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (status != cudaSuccess) return status;
    answer = major >= 9 ? 1 : -1;
    if (is_kept) known[device].store(answer, std::memory_order_relaxed);
  }
  early = answer > 0;
  return cudaSuccess;
}

/// Starts `kernel` and returns at once, also into a graph that the stream records.
template <typename... Parameters>
cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, int threads, cudaStream_t stream,
                   Parameters... arguments) {
  int device = 0;
  bool early = false;
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) status = begins_early(device, early);
  if (status != cudaSuccess) return status;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = early ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace evalcar::kernels
