#include "store/checkpoint/cast_kernels.h"

#include <bit>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace evalcar::checkpoint {
namespace {

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

constexpr std::uint32_t kFloatInfinity = 0x7f800000U;

std::uint16_t bfloat16_of(std::uint32_t bits) {
  if ((bits & 0x7fffffffU) > kFloatInfinity) return 0x7fc0;
  return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U);
}

std::uint16_t float16_of(std::uint32_t bits) {
  const auto sign = static_cast<std::uint16_t>(bits >> 16U & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > kFloatInfinity) return static_cast<std::uint16_t>(sign | 0x7e00U);
  const auto exponent = static_cast<int>(magnitude >> 23U) - 127;
  if (exponent > 15) return static_cast<std::uint16_t>(sign | 0x7c00U);
  if (exponent < -25) return sign;  // below half of the smallest subnormal, 2^-24
  // The mantissa with its hidden bit, of which a normal result keeps the upper 11 bits and a
  // subnormal one fewer.
  const std::uint32_t mantissa = (magnitude & 0x7fffffU) | 0x800000U;
  const unsigned drop = exponent >= -14 ? 13U : static_cast<unsigned>(-1 - exponent);
  const std::uint32_t half = 1U << (drop - 1);
  const std::uint32_t rest = mantissa & (half * 2 - 1);
  std::uint32_t kept = mantissa >> drop;
  if (rest > half || (rest == half && (kept & 1U) != 0)) ++kept;
  // The hidden bit adds one to the exponent field; a carry out of the mantissa does the same, up to
  // infinity.
  const std::uint32_t field = exponent >= -14 ? static_cast<std::uint32_t>(exponent + 14) : 0U;
  return static_cast<std::uint16_t>(sign | ((field << 10U) + kept));
}

std::uint32_t float32_of_float16(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16U;
  const std::uint32_t exponent = half >> 10U & 0x1fU;
  const std::uint32_t mantissa = half & 0x3ffU;
  if (exponent == 31) {
    const std::uint32_t quiet = mantissa == 0 ? 0U : 0x400000U;
    return sign | kFloatInfinity | quiet | mantissa << 13U;
  }
  if (exponent != 0) return sign | (exponent + 112) << 23U | mantissa << 13U;
  // A subnormal is a whole number of 2^-24, exact in float32.
  const float value = static_cast<float>(mantissa) * 0x1p-24F;
  return sign | std::bit_cast<std::uint32_t>(value);
}

void bfloat16_portable(const std::byte* in, std::byte* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    store(out + 2 * i, bfloat16_of(load<std::uint32_t>(in + 4 * i)));
  }
}

void float16_portable(const std::byte* in, std::byte* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    store(out + 2 * i, float16_of(load<std::uint32_t>(in + 4 * i)));
  }
}

void from_bfloat16_portable(const std::byte* in, std::byte* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    store(out + 4 * i, static_cast<std::uint32_t>(load<std::uint16_t>(in + 2 * i)) << 16U);
  }
}

void from_float16_portable(const std::byte* in, std::byte* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    store(out + 4 * i, float32_of_float16(load<std::uint16_t>(in + 2 * i)));
  }
}

constexpr CastKernels kPortable{"portable", bfloat16_portable, float16_portable,
                                from_bfloat16_portable, from_float16_portable};

#if defined(__x86_64__)

// ---- AVX2 and F16C, 8 or 16 elements a step ----

#define EVALCAR_AVX2 [[gnu::target("avx2,f16c")]]

EVALCAR_AVX2 inline __m256i load_256(const std::byte* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
EVALCAR_AVX2 inline __m128i load_128(const std::byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
EVALCAR_AVX2 inline void store_256(std::byte* to, __m256i value) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value);
}

/// The bfloat16 of each float32, in the lower half of its 32 bits.
EVALCAR_AVX2 inline __m256i rounded_avx2(__m256i bits) {
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i carried = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
  const __m256i nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f800000));
  return _mm256_blendv_epi8(_mm256_srli_epi32(carried, 16), _mm256_set1_epi32(0x7fc0), nan);
}

EVALCAR_AVX2 void bfloat16_avx2(const std::byte* in, std::byte* out, std::size_t count) {
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m256i packed = _mm256_packus_epi32(rounded_avx2(load_256(in + 4 * i)),
                                               rounded_avx2(load_256(in + 4 * i + 32)));
    store_256(out + 2 * i, _mm256_permute4x64_epi64(packed, 0xd8));
  }
  bfloat16_portable(in + 4 * i, out + 2 * i, count - i);
}

EVALCAR_AVX2 void float16_avx2(const std::byte* in, std::byte* out, std::size_t count) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 values = _mm256_castsi256_ps(load_256(in + 4 * i));
    const __m128i halves = _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
    const __m128i nan_16 =
        _mm_packs_epi32(_mm256_castsi256_si128(nan), _mm256_extracti128_si256(nan, 1));
    const __m128i plain_nan = _mm_or_si128(
        _mm_and_si128(halves, _mm_set1_epi16(static_cast<short>(0x8000))), _mm_set1_epi16(0x7e00));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * i),
                     _mm_blendv_epi8(halves, plain_nan, nan_16));
  }
  float16_portable(in + 4 * i, out + 2 * i, count - i);
}

EVALCAR_AVX2 void from_bfloat16_avx2(const std::byte* in, std::byte* out, std::size_t count) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256i wide = _mm256_cvtepu16_epi32(load_128(in + 2 * i));
    store_256(out + 4 * i, _mm256_slli_epi32(wide, 16));
  }
  from_bfloat16_portable(in + 2 * i, out + 4 * i, count - i);
}

EVALCAR_AVX2 void from_float16_avx2(const std::byte* in, std::byte* out, std::size_t count) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    store_256(out + 4 * i, _mm256_castps_si256(_mm256_cvtph_ps(load_128(in + 2 * i))));
  }
  from_float16_portable(in + 2 * i, out + 4 * i, count - i);
}

constexpr CastKernels kAvx2{"avx2", bfloat16_avx2, float16_avx2, from_bfloat16_avx2,
                            from_float16_avx2};

// ---- AVX-512, 16 elements a step ----
// VCVTNEPS2BF16 (AVX512_BF16) is not used: it flushes subnormals to zero.

#define EVALCAR_AVX512 [[gnu::target("avx512f,avx512bw,avx512vl")]]

EVALCAR_AVX512 void bfloat16_avx512(const std::byte* in, std::byte* out, std::size_t count) {
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m512i bits = _mm512_loadu_si512(in + 4 * i);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i carried =
        _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
    const __mmask16 nan = _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(0x7f800000));
    const __m512i rounded =
        _mm512_mask_blend_epi32(nan, _mm512_srli_epi32(carried, 16), _mm512_set1_epi32(0x7fc0));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 2 * i), _mm512_cvtepi32_epi16(rounded));
  }
  bfloat16_portable(in + 4 * i, out + 2 * i, count - i);
}

EVALCAR_AVX512 void float16_avx512(const std::byte* in, std::byte* out, std::size_t count) {
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m512 values = _mm512_loadu_ps(in + 4 * i);
    const __m256i halves = _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT);
    const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
    const __m256i plain_nan =
        _mm256_or_si256(_mm256_and_si256(halves, _mm256_set1_epi16(static_cast<short>(0x8000))),
                        _mm256_set1_epi16(0x7e00));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 2 * i),
                        _mm256_mask_blend_epi16(nan, halves, plain_nan));
  }
  float16_portable(in + 4 * i, out + 2 * i, count - i);
}

EVALCAR_AVX512 void from_bfloat16_avx512(const std::byte* in, std::byte* out, std::size_t count) {
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m256i narrow = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + 2 * i));
    _mm512_storeu_si512(out + 4 * i, _mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16));
  }
  from_bfloat16_portable(in + 2 * i, out + 4 * i, count - i);
}

EVALCAR_AVX512 void from_float16_avx512(const std::byte* in, std::byte* out, std::size_t count) {
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m256i narrow = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + 2 * i));
    _mm512_storeu_ps(out + 4 * i, _mm512_cvtph_ps(narrow));
  }
  from_float16_portable(in + 2 * i, out + 4 * i, count - i);
}

/// clang 14's __builtin_cpu_supports does not know the name.
bool has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

constexpr CastKernels kAvx512{"avx512", bfloat16_avx512, float16_avx512, from_bfloat16_avx512,
                              from_float16_avx512};

#endif

}  // namespace

const CastKernels& portable_casts() { return kPortable; }

const CastKernels* avx2_casts() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && has_f16c()) return &kAvx2;
#endif
  return nullptr;
}

const CastKernels* avx512_casts() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl")) {
    return &kAvx512;
  }
#endif
  return nullptr;
}

const CastKernels& best_casts() {
  static const CastKernels& best = []() -> const CastKernels& {
    if (const CastKernels* const found = avx512_casts()) return *found;
    if (const CastKernels* const found = avx2_casts()) return *found;
    return kPortable;
  }();
  return best;
}

}  // namespace evalcar::checkpoint
