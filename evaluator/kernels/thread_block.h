// A kernel's body as one text for the GPU and for a test on a machine that has none.
//
// A body is a template over its block, and a sequence of phases. block.each_thread(work) calls
// work(thread, own) for each thread and ends with a barrier; `own` is what a thread keeps in its
// registers from one phase to the next. Between phases lanes add up, or take the largest, of one of
// their registers, or multiply tiles that lie in the registers of a warp. On the GPU that is this
// header's DeviceBlock; tests/unit/kernels/emulated_block.h runs the threads of a phase one after
// the other, forwards or backwards: where both give the same bits, no thread of a phase needs
// another's work. C++17, for nvcc.
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

/// A lane's registers of A (16, 16) and B (16, 8), two bfloat16 in each, the earlier column (of B:
/// row) in the lower half. Lane l = 4 g + t has of A: rows g and g + 8 at columns 2 t, then both at
/// 2 t + 8; of B: column g at rows 2 t and 2 t + 8. Of C (16, 8) its four float32 are row g at
/// columns 2 t and 2 t + 1, then row g + 8. (PTX ISA, fragments of mma.m16n8k16.)
struct TileShare {
  std::uint32_t a[4];
  std::uint32_t b[2];
};

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
  /// C += A · B by each warp on the tensor cores: `share_of(own)` is the lane's TileShare,
  /// `sums_of(own)` a reference to its float[4] of C.
  template <typename Share, typename Sums>
  __device__ __forceinline__ void multiply_tiles(Share share_of, Sums sums_of) {
    const TileShare share = share_of(own_);
    float (&c)[4] = sums_of(own_);
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(share.a[0]), "r"(share.a[1]), "r"(share.a[2]), "r"(share.a[3]), "r"(share.b[0]),
          "r"(share.b[1]));
  }

 private:
  Own own_;
};
#endif

}  // namespace evalcar::kernels
