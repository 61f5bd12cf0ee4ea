// The numbers of CUDA kernels, for the GPU and for a test on a machine that has none: storage
// types, vectors of 16 bytes, float32's functions. C++17, for nvcc.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "evaluator/kernels/thread_block.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#endif

namespace evalcar::kernels {

/// How a kernel's tensors are stored; it computes in float32.
enum class StoredType { kFloat32, kBFloat16 };

/// The upper half of a float32.
struct BFloat16 {
  std::uint16_t bits;
};

EVALCAR_ON_BOTH float float_of_bits(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
#endif
}

EVALCAR_ON_BOTH float widen(float value) { return value; }
EVALCAR_ON_BOTH float widen(BFloat16 value) {
  return float_of_bits(std::uint32_t{value.bits} << 16);
}

/// Rounded to the nearest, ties to even. A NaN stays one.
template <typename T>
EVALCAR_ON_BOTH T narrow(float value);
template <>
EVALCAR_ON_BOTH float narrow<float>(float value) {
  return value;
}
template <>
EVALCAR_ON_BOTH BFloat16 narrow<BFloat16>(float value) {
#ifdef __CUDA_ARCH__
  return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
#else
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if (std::isnan(value)) return {0x7fc0};
  return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16)};
#endif
}

/// Two of them in a word, the first in its lower half.
EVALCAR_ON_BOTH std::uint32_t narrow_pair(float first, float second) {
#ifdef __CUDA_ARCH__
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);  // one instruction
  std::uint32_t word;
  memcpy(&word, &pair, sizeof(word));
  return word;
#else
  return std::uint32_t{narrow<BFloat16>(first).bits} |
         (std::uint32_t{narrow<BFloat16>(second).bits} << 16);
#endif
}

/// What `value` is once it was stored as a T.
template <typename T>
EVALCAR_ON_BOTH float rounded(float value) {
  return widen(narrow<T>(value));
}

/// Numbers in 16 bytes, which a thread loads at once.
template <typename T>
constexpr int kVector = static_cast<int>(16 / sizeof(T));

/// Whether vectors can be loaded from there.
inline bool is_at_boundary(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

/// Four words at a 16-byte boundary.
struct Words {
  std::uint32_t at[4];
};
EVALCAR_ON_BOTH Words load_words(const void* from) {
#ifdef __CUDA_ARCH__
  const uint4 words = *static_cast<const uint4*>(from);
  return {{words.x, words.y, words.z, words.w}};
#else
  Words words;
  std::memcpy(&words, from, sizeof(words));
  return words;
#endif
}
EVALCAR_ON_BOTH void store_words(const Words& words, void* to) {
#ifdef __CUDA_ARCH__
  *static_cast<uint4*>(to) = make_uint4(words.at[0], words.at[1], words.at[2], words.at[3]);
#else
  std::memcpy(to, &words, sizeof(words));
#endif
}

/// The lower halves of two words, or the upper ones; a's is the lower one of the result.
EVALCAR_ON_BOTH std::uint32_t halves_of(std::uint32_t a, std::uint32_t b, bool upper) {
#ifdef __CUDA_ARCH__
  return __byte_perm(a, b, upper ? 0x7632 : 0x5410);
#else
  return upper ? (a >> 16) | (b & 0xffff0000U) : (a & 0xffffU) | (b << 16);
#endif
}

/// One word, two bfloat16, at its boundary.
EVALCAR_ON_BOTH std::uint32_t load_word(const BFloat16* from) {
#ifdef __CUDA_ARCH__
  return *reinterpret_cast<const std::uint32_t*>(from);
#else
  std::uint32_t word;
  std::memcpy(&word, from, sizeof(word));
  return word;
#endif
}
EVALCAR_ON_BOTH void store_word(std::uint32_t word, BFloat16* to) {
#ifdef __CUDA_ARCH__
  *reinterpret_cast<std::uint32_t*>(to) = word;
#else
  std::memcpy(to, &word, sizeof(word));
#endif
}

/// Words of zeros where there is nothing to load.
EVALCAR_ON_BOTH Words load_words_if(bool is_there, const BFloat16* from) {
  return is_there ? load_words(from) : Words{};
}

/// The kVector<T> numbers that four words are.
template <typename T>
EVALCAR_ON_BOTH void widen_words(const Words& words, float (&to)[kVector<T>]);
template <>
EVALCAR_ON_BOTH void widen_words<float>(const Words& words, float (&to)[4]) {
  EVALCAR_UNROLL
  for (int i = 0; i < 4; ++i) to[i] = float_of_bits(words.at[i]);
}
template <>
EVALCAR_ON_BOTH void widen_words<BFloat16>(const Words& words, float (&to)[8]) {
  EVALCAR_UNROLL
  for (int i = 0; i < 4; ++i) {
    to[2 * i] = float_of_bits(words.at[i] << 16);
    to[2 * i + 1] = float_of_bits(words.at[i] & 0xffff0000U);
  }
}

/// kVector<T> numbers at a 16-byte boundary.
template <typename T>
EVALCAR_ON_BOTH void load_vector(const T* from, float (&to)[kVector<T>]) {
  widen_words<T>(load_words(from), to);
}
EVALCAR_ON_BOTH void store_vector(const float (&from)[4], float* to) {
#ifdef __CUDA_ARCH__
  *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
#else
  std::memcpy(to, from, sizeof(from));
#endif
}
EVALCAR_ON_BOTH void store_vector(const float (&from)[8], BFloat16* to) {
  Words words{};
  EVALCAR_UNROLL
  for (int i = 0; i < 4; ++i) words.at[i] = narrow_pair(from[2 * i], from[2 * i + 1]);
  store_words(words, to);
}

/// A whole vector, or one number.
template <int kCount, typename T>
EVALCAR_ON_BOTH void load_numbers(const T* from, float (&to)[kCount]) {
  if constexpr (kCount == 1) {
    to[0] = widen(*from);
  } else {
    load_vector(from, to);
  }
}
template <int kCount, typename T>
EVALCAR_ON_BOTH void store_numbers(const float (&from)[kCount], T* to) {
  if constexpr (kCount == 1) {
    *to = narrow<T>(from[0]);
  } else {
    store_vector(from, to);
  }
}

/// kCount numbers of a block's shared memory, at a 16-byte boundary where kCount is a multiple of
/// 4.
template <int kCount>
EVALCAR_ON_BOTH void load_shared(const float* from, float (&to)[kCount]) {
  if constexpr (kCount % 4 == 0) {
    EVALCAR_UNROLL
    for (int i = 0; i < kCount; i += 4) {
      float four[4];
      load_vector(from + i, four);
      EVALCAR_UNROLL
      for (int j = 0; j < 4; ++j) to[i + j] = four[j];
    }
  } else {
    EVALCAR_UNROLL
    for (int i = 0; i < kCount; ++i) to[i] = from[i];
  }
}

// Not contracted on a GPU, where ATen has two operations; nor on x86-64 as it is built here.
EVALCAR_ON_BOTH float product(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
EVALCAR_ON_BOTH float total(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

/// What scores are taken off by before they become powers. Where all are -inf it is 0: each power
/// is 0 then, and not NaN.
EVALCAR_ON_BOTH float base_of(float largest) { return largest == -INFINITY ? 0.0F : largest; }

EVALCAR_ON_BOTH float power_of_two(float x) {
#ifdef __CUDA_ARCH__
  return exp2f(x);
#else
  return std::exp2(x);
#endif
}

EVALCAR_ON_BOTH float exponential(float x) {
#ifdef __CUDA_ARCH__
  return expf(x);
#else
  return std::exp(x);
#endif
}

EVALCAR_ON_BOTH float larger(float a, float b) {
#ifdef __CUDA_ARCH__
  return fmaxf(a, b);
#else
  return std::fmax(a, b);
#endif
}

}  // namespace evalcar::kernels
