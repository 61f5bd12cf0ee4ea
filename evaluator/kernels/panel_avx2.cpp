#include "evaluator/kernels/panel_avx2.h"

#include <algorithm>
#include <array>
#include <limits>

#include "evaluator/kernels/lanes.h"

namespace evalcar::kernels {

#if defined(__x86_64__)

namespace {

// So many rows at once: with a panel's two vectors twelve sums, of sixteen registers.
constexpr std::int64_t kRows = 6;

/// In place of the intrinsic, by which GCC 12 moves sums from register to register (0.75 times the
/// rate).
EVALCAR_PANELS [[gnu::always_inline]] inline void add_product(__m256& sum, __m256 a, __m256 b) {
  asm("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
}

/// Two lines of a cache; in the end what lies behind.
EVALCAR_PANELS [[gnu::always_inline]] inline void ask(Ahead& ahead) {
  _mm_prefetch(reinterpret_cast<const char*>(ahead.next), _MM_HINT_T1);
  _mm_prefetch(reinterpret_cast<const char*>(ahead.next + 64), _MM_HINT_T1);
  ahead.next = std::min(ahead.next + 128, ahead.end);
}

/// What becomes of eight sums of row m, whose first is output i.
EVALCAR_PANELS [[gnu::always_inline]] inline void put(const PanelProduct& p, std::int64_t m,
                                                      std::int64_t i, __m256 sum) {
  float* const to = p.sums + m * p.stride + i;
  if (p.adds) sum = _mm256_add_ps(sum, _mm256_load_ps(to));
  if (p.result == nullptr) return _mm256_store_ps(to, sum);
  const PanelResult& result = *p.result;
  float* const y = result.y + m * result.stride + i;
  if (result.bias != nullptr) sum = _mm256_add_ps(sum, _mm256_loadu_ps(result.bias + i));
  if (result.adds) sum = _mm256_add_ps(sum, _mm256_loadu_ps(y));
  _mm256_storeu_ps(y, sum);
}

template <int kCount>
EVALCAR_PANELS void multiply_rows(const PanelProduct& p, std::int64_t first, Ahead& moved) {
  constexpr int kHalf = (kCount + 1) / 2;  // rows are found from two pointers
  __m256 sums[kCount][2];
#pragma GCC unroll 6
  for (int i = 0; i < kCount; ++i) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) sums[i][half] = _mm256_setzero_ps();
  }
  const float* near = p.x + first * p.x_stride;
  const float* far = near + kHalf * p.x_stride;
  const float* panel = p.panel;
  const auto step = [&](std::int64_t k) __attribute__((always_inline, target("avx2,fma"))) {
    const __m256 low = _mm256_load_ps(panel + 16 * k);
    const __m256 high = _mm256_load_ps(panel + 16 * k + 8);
#pragma GCC unroll 6
    for (int i = 0; i < kCount; ++i) {
      const float* const row = i < kHalf ? near + i * p.x_stride : far + (i - kHalf) * p.x_stride;
      const __m256 x = _mm256_broadcast_ss(row + k);
      add_product(sums[i][0], x, low);
      add_product(sums[i][1], x, high);
    }
  };
  Ahead ahead = moved;  // in registers
  std::int64_t left = p.width;
  for (; left >= 4; left -= 4, near += 4, far += 4, panel += 64) {
    ask(ahead);
    step(0);
    step(1);
    step(2);
    step(3);
  }
  for (; left > 0; --left, ++near, ++far, panel += 16) step(0);
  moved = ahead;
#pragma GCC unroll 6
  for (int i = 0; i < kCount; ++i) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) put(p, first + i, 8 * half, sums[i][half]);
  }
}

void multiply(const PanelProduct& p, Ahead& ahead) {
  using Rows = void (*)(const PanelProduct&, std::int64_t, Ahead&);
  static constexpr std::array<Rows, kRows> kBlocks = {multiply_rows<1>, multiply_rows<2>,
                                                      multiply_rows<3>, multiply_rows<4>,
                                                      multiply_rows<5>, multiply_rows<6>};
  // As even as can be: a block of few rows waits for its own sums.
  const std::int64_t blocks = (p.rows + kRows - 1) / kRows;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t first = block * p.rows / blocks, end = (block + 1) * p.rows / blocks;
    kBlocks[static_cast<std::size_t>(end - first - 1)](p, first, ahead);
  }
}

/// 2^x: 0 below 2^-126, and never of more than 0 here. As right as that of lanes.h.
EVALCAR_PANELS [[gnu::always_inline]] inline __m256 power_of_two(__m256 x) {
  const __m256 there = _mm256_cmp_ps(x, _mm256_set1_ps(-126.0F), _CMP_NLT_UQ);  // a NaN is
  const __m256 whole = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m256 rest = _mm256_sub_ps(x, whole);
  __m256 y = _mm256_set1_ps(kPowerOfTwo[0]);
#pragma GCC unroll 6
  for (std::size_t i = 1; i < kPowerOfTwo.size(); ++i)
    y = _mm256_fmadd_ps(y, rest, _mm256_set1_ps(kPowerOfTwo[i]));
  const __m256i power =
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(whole), _mm256_set1_epi32(127)), 23);
  return _mm256_and_ps(_mm256_mul_ps(y, _mm256_castsi256_ps(power)), there);
}

EVALCAR_PANELS [[gnu::always_inline]] inline float largest_of(__m256 x) {
  x = _mm256_max_ps(x, _mm256_permute2f128_ps(x, x, 1));
  x = _mm256_max_ps(x, _mm256_permute_ps(x, 0x4e));
  x = _mm256_max_ps(x, _mm256_permute_ps(x, 0xb1));
  return _mm256_cvtss_f32(x);
}

EVALCAR_PANELS void weigh(float* scores, std::int64_t width, float& largest, float* totals,
                          float* sums, std::int64_t dim) {
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  // Of a number and none this maximum is the second, `most`.
  __m256 most[2] = {_mm256_set1_ps(largest), _mm256_set1_ps(largest)};
  for (std::int64_t at = 0; at < width; at += 16) {
    most[0] = _mm256_max_ps(_mm256_load_ps(scores + at), most[0]);
    most[1] = _mm256_max_ps(_mm256_load_ps(scores + at + 8), most[1]);
  }
  const float now = largest_of(_mm256_max_ps(most[0], most[1])), before = largest;
  largest = now;
  const __m256 base = _mm256_set1_ps(now == kHidden ? 0 : now);
  __m256 low = _mm256_load_ps(totals), high = _mm256_load_ps(totals + 8);
  if (now != before) {
    const __m256 kept = power_of_two(_mm256_set1_ps(before - now));
    low = _mm256_mul_ps(low, kept);
    high = _mm256_mul_ps(high, kept);
    for (std::int64_t d = 0; d < dim; d += 8)
      _mm256_store_ps(sums + d, _mm256_mul_ps(_mm256_load_ps(sums + d), kept));
  }
  for (std::int64_t at = 0; at < width; at += 16) {
    const __m256 first = power_of_two(_mm256_sub_ps(_mm256_load_ps(scores + at), base));
    const __m256 second = power_of_two(_mm256_sub_ps(_mm256_load_ps(scores + at + 8), base));
    _mm256_store_ps(scores + at, first);
    _mm256_store_ps(scores + at + 8, second);
    low = _mm256_add_ps(low, first);
    high = _mm256_add_ps(high, second);
  }
  _mm256_store_ps(totals, low);
  _mm256_store_ps(totals + 8, high);
}

}  // namespace

PanelKernels panels_of_avx2() { return {"avx2", 1, multiply, weigh}; }

#endif

}  // namespace evalcar::kernels
