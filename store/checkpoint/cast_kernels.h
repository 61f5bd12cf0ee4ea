// Casts between float32 and the 16-bit floats, in the widest instructions that the CPU has. All
// forms give the same bits, NaNs too, so that a merge gives the same bytes on every machine.
//
// Rounding is to the nearest, ties to even, subnormals kept, too large becomes infinity. A NaN
// becomes 0x7fc0 in bfloat16 and sign | 0x7e00 in float16 (as in c10's scalar conversions; ATen's
// vector code gives others, depending on where in the tensor the element lies); from float16 it
// keeps sign and payload and becomes quiet.
#pragma once

#include <cstddef>

namespace evalcar::checkpoint {

/// Each converts `count` elements, which need no alignment. `in` and `out` do not overlap.
struct CastKernels {
  using Cast = void (*)(const std::byte* in, std::byte* out, std::size_t count);
  const char* name = "";  ///< "portable", "avx2", "avx512"
  Cast float32_to_bfloat16 = nullptr;
  Cast float32_to_float16 = nullptr;
  Cast bfloat16_to_float32 = nullptr;
  Cast float16_to_float32 = nullptr;
};

/// The reference: plain C++, an element at a time.
const CastKernels& portable_casts();
/// AVX2 with F16C; null where the CPU (or the build's target) has not both.
const CastKernels* avx2_casts();
/// AVX-512 F, BW and VL; null where the CPU has not all of them.
const CastKernels* avx512_casts();
/// The last of these that there is. What convert() uses.
const CastKernels& best_casts();

}  // namespace evalcar::checkpoint
