// Vectors of 16 numbers, in registers of 256 bits at most: one text for every CPU. A function
// marked with EVALCAR_FOR_EACH_CPU is compiled for each level of x86-64 (AVX-512; AVX2 with FMA;
// any), and chosen when the program starts: by what the CPU can do, as the name of an architecture
// would mean those very CPUs. Such a file is compiled without fused products (CMakeLists.txt), so
// that all give the same bits. What it calls of the functions below is compiled into it; they take
// references, as how a vector is handed over differs between those kinds.
#pragma once

#include <array>
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
/// Of two halves: of a vector that is wider than the CPU's registers GCC 12 keeps sums in memory
/// (four times the time with AVX2). With AVX-512 one register would do; what that brings was not
/// measured since.
using Half [[gnu::vector_size(sizeof(float) * kLanes / 2)]] = float;
using WholeHalf [[gnu::vector_size(sizeof(std::int32_t) * kLanes / 2)]] = std::int32_t;
struct Lanes {
  Half low, high;

  EVALCAR_IN_LANES float operator[](std::int64_t i) const {
    return i < kLanes / 2 ? low[i] : high[i - kLanes / 2];
  }
};

EVALCAR_IN_LANES void load(const float* from, Lanes& x) {
  std::memcpy(&x.low, from, sizeof(x.low));
  std::memcpy(&x.high, from + kLanes / 2, sizeof(x.high));
}
EVALCAR_IN_LANES void store(const Lanes& x, float* to) {
  std::memcpy(to, &x.low, sizeof(x.low));
  std::memcpy(to + kLanes / 2, &x.high, sizeof(x.high));
}
EVALCAR_IN_LANES void fill(Lanes& x, float value) {
  x.low = Half{} + value;
  x.high = Half{} + value;
}

EVALCAR_IN_LANES void operator+=(Lanes& x, const Lanes& y) {
  x.low += y.low;
  x.high += y.high;
}
EVALCAR_IN_LANES void operator-=(Lanes& x, float y) {
  x.low -= y;
  x.high -= y;
}
EVALCAR_IN_LANES void operator*=(Lanes& x, const Lanes& y) {
  x.low *= y.low;
  x.high *= y.high;
}
EVALCAR_IN_LANES void operator*=(Lanes& x, float y) {
  x.low *= y;
  x.high *= y;
}
/// x += y · z, each rounded, or as one, as the file is compiled.
EVALCAR_IN_LANES void add_product(Lanes& x, const Lanes& y, const Lanes& z) {
  x.low += y.low * z.low;
  x.high += y.high * z.high;
}
EVALCAR_IN_LANES void add_product(Lanes& x, const Lanes& y, float z) {
  x.low += y.low * z;
  x.high += y.high * z;
}
/// x = the larger; where one is no number, x.
EVALCAR_IN_LANES void raise(Lanes& x, const Lanes& y) {
  x.low = x.low < y.low ? y.low : x.low;
  x.high = x.high < y.high ? y.high : x.high;
}

/// The lanes' sum, halves first.
EVALCAR_IN_LANES float sum_of(const Lanes& x) {
  using Four [[gnu::vector_size(16)]] = float;
  const Half eight = x.low + x.high;
  const Four four = __builtin_shufflevector(eight, eight, 0, 1, 2, 3) +
                    __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
  return (four[0] + four[2]) + (four[1] + four[3]);
}

/// The best polynomial of degree 6 for 2^x on [-0.5, 0.5].
constexpr std::array<float, 7> kPowerOfTwo = {0.00015337577497120947F,
                                              0.0013399859890341759F,
                                              0.009618519805371761F,
                                              0.05550329014658928F,
                                              0.24022646248340607F,
                                              0.6931471824645996F,
                                              1.0F};

/// 2^x in place; below 2^-126 it is that, from 2^127.5 on infinite. Right to 2 units of float32's
/// last place: the polynomial's error, and its own rounding.
EVALCAR_IN_LANES void to_power_of_two(Half& x) {
  constexpr float kRounder = 12582912;    // 1.5 · 2^23: adding it leaves whole numbers
  x = x < -126.0F ? Half{} - 126.0F : x;  // a NaN stays one
  x = x > 128.0F ? Half{} + 128.0F : x;
  const Half whole = (x + kRounder) - kRounder;
  const Half rest = x - whole;
  Half y = Half{} + kPowerOfTwo[0];
#pragma GCC unroll 6
  for (std::size_t i = 1; i < kPowerOfTwo.size(); ++i) y = y * rest + kPowerOfTwo[i];
  const WholeHalf power = (__builtin_convertvector(whole, WholeHalf) + 127) << 23;
  Half scale;
  std::memcpy(&scale, &power, sizeof(scale));
  x = y * scale;
}
EVALCAR_IN_LANES void to_power_of_two(Lanes& x) {
  to_power_of_two(x.low);
  to_power_of_two(x.high);
}

}  // namespace evalcar::kernels
