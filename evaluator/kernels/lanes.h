// Vectors of 16 numbers, whatever registers there are: one text for every CPU. A function marked
// with EVALCAR_FOR_EACH_CPU is compiled for each level of x86-64 (AVX-512; AVX2 with FMA; any), and
// chosen when the program starts: by what the CPU can do, as the name of an architecture would mean
// those very CPUs. Such a file is compiled without fused products (CMakeLists.txt), so that all
// give the same bits. What it calls of the functions below is compiled into it; they take
// references, as how a vector is handed over differs between those kinds.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#define EVALCAR_FOR_EACH_CPU [[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]]
#else
#define EVALCAR_FOR_EACH_CPU
#endif
#define EVALCAR_IN_LANES [[gnu::always_inline]] inline

namespace evalcar::kernels {

constexpr std::int64_t kLanes = 16;
using Lanes [[gnu::vector_size(sizeof(float) * kLanes)]] = float;
using WholeLanes [[gnu::vector_size(sizeof(std::int32_t) * kLanes)]] = std::int32_t;

EVALCAR_IN_LANES void load(const float* from, Lanes& x) { std::memcpy(&x, from, sizeof(x)); }
EVALCAR_IN_LANES void store(const Lanes& x, float* to) { std::memcpy(to, &x, sizeof(x)); }

/// The lanes' sum, halves first.
EVALCAR_IN_LANES float sum_of(const Lanes& x) {
  using Eight [[gnu::vector_size(32)]] = float;
  using Four [[gnu::vector_size(16)]] = float;
  const Eight eight = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
                      __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
  const Four four = __builtin_shufflevector(eight, eight, 0, 1, 2, 3) +
                    __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
  return (four[0] + four[2]) + (four[1] + four[3]);
}

/// 2^x in place; below 2^-126 it is that, from 2^127.5 on infinite. Right to 2 units of float32's
/// last place: the best polynomial of degree 6 for 2^x on [-0.5, 0.5], and its own rounding.
EVALCAR_IN_LANES void to_power_of_two(Lanes& x) {
  constexpr float kRounder = 12582912;     // 1.5 · 2^23: adding it leaves whole numbers
  x = x < -126.0F ? Lanes{} - 126.0F : x;  // a NaN stays one
  x = x > 128.0F ? Lanes{} + 128.0F : x;
  const Lanes whole = (x + kRounder) - kRounder;
  const Lanes rest = x - whole;
  Lanes y = Lanes{} + 0.00015337577497120947F;
  y = y * rest + 0.0013399859890341759F;
  y = y * rest + 0.009618519805371761F;
  y = y * rest + 0.05550329014658928F;
  y = y * rest + 0.24022646248340607F;
  y = y * rest + 0.6931471824645996F;
  y = y * rest + 1.0F;
  const WholeLanes power = (__builtin_convertvector(whole, WholeLanes) + 127) << 23;
  Lanes scale;
  std::memcpy(&scale, &power, sizeof(scale));
  x = y * scale;
}

}  // namespace evalcar::kernels
