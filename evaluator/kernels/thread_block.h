// A kernel's body as one text for the GPU and for a test on a machine that has none.
//
// A body is a template over its block, and a sequence of phases. block.each_thread(work) calls
// work(thread, own) for each thread and ends with a barrier; `own` is what a thread keeps in its
// registers from one phase to the next. Between phases lanes add up, or take the largest, of one of
// their registers. On the GPU that is this header's DeviceBlock;
// tests/unit/kernels/emulated_block.h runs the threads of a phase one after the other, forwards or
// backwards: where both give the same bits, no thread of a phase needs another's work. C++17, for
// nvcc.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define EVALCAR_DEVICE __device__ __forceinline__
#define EVALCAR_ON_BOTH __host__ __device__ __forceinline__
#else
#define EVALCAR_DEVICE inline
#define EVALCAR_ON_BOTH inline
#endif

#ifdef __CUDA_ARCH__
#define EVALCAR_UNROLL _Pragma("unroll")
#define EVALCAR_UNROLL_BY_4 _Pragma("unroll 4")
#else  // g++ knows them by other names
#define EVALCAR_UNROLL
#define EVALCAR_UNROLL_BY_4
#endif

namespace evalcar::kernels {

constexpr int kWarp = 32;

#ifdef __CUDACC__
/// The block that runs. `register_of(own)` is a reference to the float that is meant; all threads
/// of a block have to call together.
template <typename Own>
class DeviceBlock {
 public:
  template <typename Work>
  __device__ __forceinline__ void each_thread(Work work) {
    work(static_cast<int>(threadIdx.x), own_);
    __syncthreads();
  }
  /// For each `kLanes` neighbouring threads, a power of two up to kWarp: to all of them the sum of
  /// theirs. The order is fixed, and the same bits reach each.
  template <int kLanes, typename Register>
  __device__ __forceinline__ void sum_lanes(Register register_of) {
    float& value = register_of(own_);
    EVALCAR_UNROLL
    for (int apart = kLanes / 2; apart > 0; apart /= 2)
      value += __shfl_xor_sync(0xffffffffu, value, apart);
  }
  /// The same for the largest; a NaN counts only where all are.
  template <int kLanes, typename Register>
  __device__ __forceinline__ void max_lanes(Register register_of) {
    float& value = register_of(own_);
    EVALCAR_UNROLL
    for (int apart = kLanes / 2; apart > 0; apart /= 2)
      value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, apart));
  }

 private:
  Own own_;
};
#endif

}  // namespace evalcar::kernels
