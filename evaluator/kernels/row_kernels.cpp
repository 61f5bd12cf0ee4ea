#include "evaluator/kernels/row_kernels.h"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace evalcar::kernels {
namespace {

float wide(float value) { return value; }
float wide(std::uint16_t value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16U);
}

/// Stores the output of a row, or adds it: the lanes' sum, then what did not fill a vector, in
/// order.
/// Compiled into each kernel: called, its instructions would be those of any x86-64, which wait for
/// whole vectors' upper halves (1.25 times the time of a token).
/// `kFused`: by fused multiply-adds, whatever the compiler would make of each copy.
template <bool kFused, typename Weight>
[[gnu::always_inline]] inline void finish(const RowProduct<Weight>& p, std::int64_t m,
                                          std::int64_t n, float sum, std::int64_t from) {
  const float* const x = p.x + m * p.width;
  const Weight* const w = p.w + n * p.width;
  for (std::int64_t k = from; k < p.width; ++k)
    sum = kFused ? __builtin_fmaf(x[k], wide(w[k]), sum) : sum + x[k] * wide(w[k]);
  if (p.bias != nullptr) sum += p.bias[n];
  float* const y = p.y + m * p.stride + n;
  if (p.adds) sum += *y;  // read only where it counts: another core may have written it last
  *y = sum;
}

// ---- portable ----

template <typename Weight>
void multiply_portable(const RowProduct<Weight>& p) {
  constexpr std::int64_t kLanes = 8;
  for (std::int64_t n = 0; n < p.outputs; ++n) {
    const Weight* const w = p.w + n * p.width;
    for (std::int64_t m = 0; m < p.rows; ++m) {
      const float* const x = p.x + m * p.width;
      std::array<float, kLanes> lanes{};
      std::int64_t k = 0;
      for (; k + kLanes <= p.width; k += kLanes) {
        for (std::size_t i = 0; i < lanes.size(); ++i) {
          const auto at = k + static_cast<std::int64_t>(i);
          lanes[i] += x[at] * wide(w[at]);
        }
      }
      float sum = 0;
      for (const float lane : lanes) sum += lane;
      finish<false>(p, m, n, sum, k);
    }
  }
}

void arrange_portable(const float* x, float* out, std::int64_t width) {
  std::copy(x, x + width, out);
}

#if defined(__x86_64__)

/// The even values of each `2 · lanes`, then the odd ones: so do they come out of a vector of
/// bfloat16, by a shift and by a mask.
void arrange_by(std::int64_t lanes, const float* x, float* out, std::int64_t width) {
  std::int64_t k = 0;
  for (; k + 2 * lanes <= width; k += 2 * lanes) {
    for (std::int64_t i = 0; i < lanes; ++i) {
      out[k + i] = x[k + 2 * i];
      out[k + lanes + i] = x[k + 2 * i + 1];
    }
  }
  std::copy(x + k, x + width, out + k);
}

/// Weights as float32; of bfloat16 the even ones, then the odd ones.
struct Two256 {
  __m256 first, second;
};
struct Two512 {
  __m512 first, second;
};

/// While a block's weights are read, what follows 512 bytes further is asked for: in the same rows,
/// or, at their end, in those of the next block. Read one by one, rows are too short and too many
/// for the hardware to see where they go: a row of 1 KB is read 1.4 times as fast so, one of 37 KB
/// 1.1 times. What lies behind the matrix may be asked for, too, which does nothing.
template <typename Weight, int kOutputs>
[[gnu::always_inline]] inline const char* ahead(const RowProduct<Weight>& p, const Weight* row,
                                                std::int64_t k, std::int64_t whole) {
  constexpr auto kAhead = static_cast<std::int64_t>(512 / sizeof(Weight));
  const std::int64_t place = k + kAhead < whole ? k : kOutputs * p.width + k - whole;
  return reinterpret_cast<const char*>(row + place + kAhead);
}

// ---- AVX2: 16 values a step ----

#define EVALCAR_AVX2 [[gnu::target("avx2,fma")]]

EVALCAR_AVX2 inline Two256 load_avx2(const float* w) {
  return {_mm256_loadu_ps(w), _mm256_loadu_ps(w + 8)};
}
EVALCAR_AVX2 inline Two256 load_avx2(const std::uint16_t* w) {
  const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w));
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000U));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)),
          _mm256_castsi256_ps(_mm256_and_si256(pairs, upper))};
}

EVALCAR_AVX2 inline float sum_of(__m256 lanes) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/// Outputs [n, n + kOutputs) of rows [m, m + kRows).
template <typename Weight, int kOutputs, int kRows>
EVALCAR_AVX2 void block_avx2(const RowProduct<Weight>& p, std::int64_t m, std::int64_t n) {
  const std::int64_t whole = p.width / 16 * 16;
  const float* const x = p.x + m * p.width;
  const Weight* const w = p.w + n * p.width;
  __m256 sums[kOutputs][kRows];
#pragma GCC unroll 8
  for (int i = 0; i < kOutputs; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kRows; ++j) sums[i][j] = _mm256_setzero_ps();
  }
  for (std::int64_t k = 0; k < whole; k += 16) {
#pragma GCC unroll 8
    for (int i = 0; i < kOutputs; ++i) {
      const Weight* const row = w + i * p.width;
      const Two256 weights = load_avx2(row + k);
      if constexpr (kOutputs > 1)
        _mm_prefetch((ahead<Weight, kOutputs>(p, row, k, whole)), _MM_HINT_T0);
#pragma GCC unroll 8
      for (int j = 0; j < kRows; ++j) {
        const float* const at = x + j * p.width + k;
        sums[i][j] = _mm256_fmadd_ps(weights.first, _mm256_loadu_ps(at), sums[i][j]);
        sums[i][j] = _mm256_fmadd_ps(weights.second, _mm256_loadu_ps(at + 8), sums[i][j]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kOutputs; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kRows; ++j) finish<true>(p, m + j, n + i, sum_of(sums[i][j]), whole);
  }
}

void arrange_avx2(const float* x, float* out, std::int64_t width) { arrange_by(8, x, out, width); }

// ---- AVX-512: 32 values a step ----

#define EVALCAR_AVX512 [[gnu::target("avx512f,fma")]]

EVALCAR_AVX512 inline Two512 load_avx512(const float* w) {
  return {_mm512_loadu_ps(w), _mm512_loadu_ps(w + 16)};
}
EVALCAR_AVX512 inline Two512 load_avx512(const std::uint16_t* w) {
  const __m512i pairs = _mm512_loadu_si512(w);
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000U));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)),
          _mm512_castsi512_ps(_mm512_and_si512(pairs, upper))};
}

EVALCAR_AVX512 inline float sum_of(__m512 lanes) {
  std::array<float, 16> all{};
  _mm512_storeu_ps(all.data(), lanes);
  return sum_of(_mm256_add_ps(_mm256_loadu_ps(all.data()), _mm256_loadu_ps(all.data() + 8)));
}

template <typename Weight, int kOutputs, int kRows>
EVALCAR_AVX512 void block_avx512(const RowProduct<Weight>& p, std::int64_t m, std::int64_t n) {
  const std::int64_t whole = p.width / 32 * 32;
  const float* const x = p.x + m * p.width;
  const Weight* const w = p.w + n * p.width;
  __m512 sums[kOutputs][kRows];
#pragma GCC unroll 8
  for (int i = 0; i < kOutputs; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kRows; ++j) sums[i][j] = _mm512_setzero_ps();
  }
  for (std::int64_t k = 0; k < whole; k += 32) {
#pragma GCC unroll 8
    for (int i = 0; i < kOutputs; ++i) {
      const Weight* const row = w + i * p.width;
      const Two512 weights = load_avx512(row + k);
      if constexpr (kOutputs > 1) {
        const char* const next = ahead<Weight, kOutputs>(p, row, k, whole);
        _mm_prefetch(next, _MM_HINT_T0);
        if constexpr (sizeof(Weight) == 4) _mm_prefetch(next + 64, _MM_HINT_T0);
      }
#pragma GCC unroll 8
      for (int j = 0; j < kRows; ++j) {
        const float* const at = x + j * p.width + k;
        sums[i][j] = _mm512_fmadd_ps(weights.first, _mm512_loadu_ps(at), sums[i][j]);
        sums[i][j] = _mm512_fmadd_ps(weights.second, _mm512_loadu_ps(at + 16), sums[i][j]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kOutputs; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kRows; ++j) finish<true>(p, m + j, n + i, sum_of(sums[i][j]), whole);
  }
}

void arrange_avx512(const float* x, float* out, std::int64_t width) {
  arrange_by(16, x, out, width);
}

// ---- over blocks ----

constexpr std::int64_t kMostRows = 4;

/// For so many rows: blocks of eight sums or more, as many chains as hide the latency of a
/// multiply-add.
template <typename Weight>
struct Shape {
  using Block = void (*)(const RowProduct<Weight>&, std::int64_t m, std::int64_t n);
  std::int64_t outputs;
  Block many;  ///< of `outputs` outputs
  Block one;
};
template <typename Weight>
using Shapes = std::array<Shape<Weight>, kMostRows>;

template <typename Weight>
constexpr Shapes<Weight> kAvx2Shapes{{{8, block_avx2<Weight, 8, 1>, block_avx2<Weight, 1, 1>},
                                      {4, block_avx2<Weight, 4, 2>, block_avx2<Weight, 1, 2>},
                                      {3, block_avx2<Weight, 3, 3>, block_avx2<Weight, 1, 3>},
                                      {2, block_avx2<Weight, 2, 4>, block_avx2<Weight, 1, 4>}}};
template <typename Weight>
constexpr Shapes<Weight> kAvx512Shapes{
    {{8, block_avx512<Weight, 8, 1>, block_avx512<Weight, 1, 1>},
     {4, block_avx512<Weight, 4, 2>, block_avx512<Weight, 1, 2>},
     {4, block_avx512<Weight, 4, 3>, block_avx512<Weight, 1, 3>},
     {4, block_avx512<Weight, 4, 4>, block_avx512<Weight, 1, 4>}}};

/// A few outputs for all rows, then the next: their part of the matrix stays in the first cache.
template <typename Weight>
void multiply_by(const Shapes<Weight>& shapes, const RowProduct<Weight>& p) {
  const auto shape_of = [&](std::int64_t rows) -> const Shape<Weight>& {
    return shapes[static_cast<std::size_t>(std::min(rows, kMostRows) - 1)];
  };
  const std::int64_t together = shape_of(p.rows).outputs;
  for (std::int64_t n = 0; n < p.outputs; n += together) {
    const std::int64_t end = std::min(p.outputs, n + together);
    for (std::int64_t m = 0; m < p.rows; m += kMostRows) {
      const Shape<Weight>& shape = shape_of(p.rows - m);
      std::int64_t at = n;
      for (; at + shape.outputs <= end; at += shape.outputs) shape.many(p, m, at);
      for (; at < end; ++at) shape.one(p, m, at);
    }
  }
}

template <typename Weight>
void multiply_avx2(const RowProduct<Weight>& p) {
  multiply_by(kAvx2Shapes<Weight>, p);
}

template <typename Weight>
void multiply_avx512(const RowProduct<Weight>& p) {
  multiply_by(kAvx512Shapes<Weight>, p);
}

#endif

std::vector<RowKernels> usable() {
  std::vector<RowKernels> kernels;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) {
    kernels.push_back(
        {"avx512", 32, multiply_avx512<float>, multiply_avx512<std::uint16_t>, arrange_avx512});
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    kernels.push_back(
        {"avx2", 16, multiply_avx2<float>, multiply_avx2<std::uint16_t>, arrange_avx2});
#endif
  kernels.push_back({"portable", 0, multiply_portable<float>, multiply_portable<std::uint16_t>,
                     arrange_portable});
  return kernels;
}

}  // namespace

std::span<const RowKernels> row_kernels() {
  static const std::vector<RowKernels> kernels = usable();
  return kernels;
}

}  // namespace evalcar::kernels
