// Vectors of 16 numbers, whatever registers there are: one text for every CPU. A function marked
// with EVALCAR_FOR_EACH_CPU is compiled for each kind of x86-64, and chosen when the program
// starts.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#define EVALCAR_FOR_EACH_CPU \
  [[gnu::target_clones("arch=skylake-avx512", "arch=haswell", "default")]]
#else
#define EVALCAR_FOR_EACH_CPU
#endif

namespace evalcar::kernels {

constexpr std::int64_t kLanes = 16;
using Lanes [[gnu::vector_size(sizeof(float) * kLanes)]] = float;

}  // namespace evalcar::kernels
