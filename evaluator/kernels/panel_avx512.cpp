#if defined(__x86_64__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // of g++ 12's own header: its bug 105593
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

#include "evaluator/kernels/panel_avx512.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "evaluator/kernels/lanes.h"

#define EVALCAR_WIDE [[gnu::target("avx512f")]]

namespace evalcar::kernels {

#if defined(__x86_64__)

namespace {

// So many rows at once: with two panels 24 sums, of 32 registers.
constexpr std::int64_t kRows = 12;
// Rows that are found from one pointer: by its offset, once and twice the stride.
constexpr int kRowsOfPointer = 3;

/// In place of the intrinsics: by those GCC 12 moves sums from register to register.
EVALCAR_WIDE [[gnu::always_inline]] inline void add_product(__m512& sum, __m512 a, __m512 b) {
  asm("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
}
EVALCAR_WIDE [[gnu::always_inline]] inline void add_product(__m512& sum, __m512 a, const float& b) {
  asm("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(a), "m"(b));
}

/// So many lines of a cache, and as many for the second panel; in the end what lies behind.
template <int kPanels>
EVALCAR_WIDE [[gnu::always_inline]] inline void ask(Ahead& ahead, std::uintptr_t lines) {
  for (std::uintptr_t i = 0; i < lines; ++i, ahead.next = std::min(ahead.next + 64, ahead.end)) {
    _mm_prefetch(reinterpret_cast<const char*>(ahead.next), _MM_HINT_T1);
    if constexpr (kPanels == 2)
      _mm_prefetch(reinterpret_cast<const char*>(ahead.next + ahead.other), _MM_HINT_T1);
  }
}

/// What becomes of the 16 sums of row m whose first is output i.
EVALCAR_WIDE [[gnu::always_inline]] inline void put(const PanelProduct& p, std::int64_t m,
                                                    std::int64_t i, __m512 sum) {
  float* const to = p.sums + m * p.stride + i;
  if (p.adds) sum = _mm512_add_ps(sum, _mm512_load_ps(to));
  if (p.result == nullptr) return _mm512_store_ps(to, sum);
  const PanelResult& result = *p.result;
  float* const y = result.y + m * result.stride + i;
  if (result.bias != nullptr) sum = _mm512_add_ps(sum, _mm512_loadu_ps(result.bias + i));
  if (result.adds) sum = _mm512_add_ps(sum, _mm512_loadu_ps(y));
  _mm512_storeu_ps(y, sum);
}

template <int kCount, int kPanels>
EVALCAR_WIDE void multiply_rows(const PanelProduct& p, std::int64_t first, Ahead& moved,
                                std::uintptr_t lines) {
  constexpr int kPointers = (kCount + kRowsOfPointer - 1) / kRowsOfPointer;
  __m512 sums[kCount][kPanels];
#pragma GCC unroll 12
  for (int i = 0; i < kCount; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kPanels; ++j) sums[i][j] = _mm512_setzero_ps();
  }
  const float* rows[kPointers];
#pragma GCC unroll 4
  for (int i = 0; i < kPointers; ++i) rows[i] = p.x + (first + i * kRowsOfPointer) * p.x_stride;
  const float* panel = p.panel;
  const auto step = [&](std::int64_t k) __attribute__((always_inline, target("avx512f"))) {
    __m512 weights[kPanels];
#pragma GCC unroll 2
    for (int j = 0; j < kPanels; ++j)
      weights[j] = _mm512_load_ps(panel + j * p.panel_stride + kPanelOutputs * k);
#pragma GCC unroll 12
    for (int i = 0; i < kCount; ++i) {
      const float& x = rows[i / kRowsOfPointer][i % kRowsOfPointer * p.x_stride + k];
      if constexpr (kPanels == 1) {
        add_product(sums[i][0], weights[0], x);
      } else {
        const __m512 same = _mm512_set1_ps(x);
#pragma GCC unroll 2
        for (int j = 0; j < kPanels; ++j) add_product(sums[i][j], same, weights[j]);
      }
    }
  };
  const auto move_on = [&](std::int64_t by) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int i = 0; i < kPointers; ++i) rows[i] += by;
    panel += kPanelOutputs * by;
  };
  Ahead ahead = moved;  // in registers
  std::int64_t left = p.width;
  for (; left >= 4; left -= 4, move_on(4)) {
    ask<kPanels>(ahead, lines);
    step(0);
    step(1);
    step(2);
    step(3);
  }
  for (; left > 0; --left, move_on(1)) step(0);
  moved = ahead;
#pragma GCC unroll 12
  for (int i = 0; i < kCount; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < kPanels; ++j) put(p, first + i, kPanelOutputs * j, sums[i][j]);
  }
}

using Rows = void (*)(const PanelProduct&, std::int64_t, Ahead&, std::uintptr_t);
template <int kPanels, int... kLess>
constexpr std::array<Rows, kRows> blocks_of_rows(std::integer_sequence<int, kLess...>) {
  return {multiply_rows<kLess + 1, kPanels>...};
}

void multiply(const PanelProduct& p, Ahead& ahead) {
  using Counts = std::make_integer_sequence<int, kRows>;
  static constexpr std::array<std::array<Rows, kRows>, kMostPanels> kBlocks = {
      blocks_of_rows<1>(Counts()), blocks_of_rows<2>(Counts())};
  const std::array<Rows, kRows>& rows = kBlocks[static_cast<std::size_t>(p.panels - 1)];
  // As even as can be: a block of few rows waits for its own sums.
  if (p.rows == 0) return;
  const std::int64_t blocks = (p.rows + kRows - 1) / kRows;
  const std::uintptr_t of_block = 64 * static_cast<std::uintptr_t>(blocks);
  const std::uintptr_t lines = (4 * ahead.bytes + of_block - 1) / of_block;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t first = block * p.rows / blocks, end = (block + 1) * p.rows / blocks;
    rows[static_cast<std::size_t>(end - first - 1)](p, first, ahead, lines);
  }
}

/// 2^x: 0 below 2^-126, and never of more than 0 here. As right as that of lanes.h.
EVALCAR_WIDE [[gnu::always_inline]] inline __m512 power_of_two(__m512 x) {
  const __mmask16 there = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.0F), _CMP_NLT_UQ);  // a NaN is
  const __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 rest = _mm512_sub_ps(x, whole);
  __m512 y = _mm512_set1_ps(kPowerOfTwo[0]);
#pragma GCC unroll 6
  for (std::size_t i = 1; i < kPowerOfTwo.size(); ++i)
    y = _mm512_fmadd_ps(y, rest, _mm512_set1_ps(kPowerOfTwo[i]));
  return _mm512_maskz_scalef_ps(there, y, whole);
}

EVALCAR_WIDE void weigh(float* scores, std::int64_t width, float& largest, float* totals,
                        float* sums, std::int64_t dim) {
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  __m512 most = _mm512_set1_ps(largest);  // of a number and none the maximum is the second
  for (std::int64_t at = 0; at < width; at += 16)
    most = _mm512_max_ps(_mm512_load_ps(scores + at), most);
  const float now = _mm512_reduce_max_ps(most), before = largest;
  largest = now;
  const __m512 base = _mm512_set1_ps(now == kHidden ? 0 : now);
  __m512 parts = _mm512_load_ps(totals);
  if (now != before) {
    const __m512 kept = power_of_two(_mm512_set1_ps(before - now));
    parts = _mm512_mul_ps(parts, kept);
    for (std::int64_t d = 0; d < dim; d += 16)
      _mm512_store_ps(sums + d, _mm512_mul_ps(_mm512_load_ps(sums + d), kept));
  }
  for (std::int64_t at = 0; at < width; at += 16) {
    const __m512 weights = power_of_two(_mm512_sub_ps(_mm512_load_ps(scores + at), base));
    _mm512_store_ps(scores + at, weights);
    parts = _mm512_add_ps(parts, weights);
  }
  _mm512_store_ps(totals, parts);
}

}  // namespace

PanelKernels panels_of_avx512() { return {"avx512", kMostPanels, multiply, weigh}; }

#endif

}  // namespace evalcar::kernels
