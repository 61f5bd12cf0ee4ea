#include "evaluator/kernels/panel_unit.h"

#include <algorithm>
#include <array>
#include <bit>

namespace evalcar::kernels {

#if defined(__x86_64__)

namespace {

// So many rows at once: with two vectors of outputs twelve sums, of sixteen registers.
constexpr std::int64_t kRows = 6;

/// In place of the intrinsic, by which GCC 12 moves sums from register to register (0.75 times the
/// rate).
EVALCAR_PANELS [[gnu::always_inline]] inline void add_product(__m256& sum, __m256 a, __m256 b) {
  asm("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
}

/// Two lines of a cache; in the end the last again and again.
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

EVALCAR_PANELS [[gnu::always_inline]] inline __m256 eight_of(const float* w) {
  return _mm256_loadu_ps(w);
}
EVALCAR_PANELS [[gnu::always_inline]] inline __m256 eight_of(const std::uint16_t* w) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(w));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

/// Eight rows' eight values become eight places of a panel.
template <typename Weight>
EVALCAR_PANELS [[gnu::always_inline]] inline void transpose(const Weight* w, std::int64_t stride,
                                                            float* panel) {
  __m256 rows[8], pairs[8], fours[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) rows[i] = eight_of(w + i * stride);
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    fours[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
    fours[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
    fours[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
    fours[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
    _mm256_store_ps(panel + 16 * k, _mm256_permute2f128_ps(fours[k], fours[k + 4], 0x20));
    _mm256_store_ps(panel + 16 * (k + 4), _mm256_permute2f128_ps(fours[k], fours[k + 4], 0x31));
  }
}

float number_of(float value) { return value; }
float number_of(std::uint16_t value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16U);
}

template <typename Weight>
EVALCAR_PANELS void pack(const Weight* w, std::int64_t stride, std::int64_t outputs,
                         std::int64_t width, float* panel) {
  std::int64_t k = 0;
  if (outputs == kPanelOutputs) {
    for (; k + 8 <= width; k += 8) {
      transpose(w + k, stride, panel + 16 * k);
      transpose(w + 8 * stride + k, stride, panel + 16 * k + 8);
    }
  }
  for (; k < width; ++k) {
    for (std::int64_t i = 0; i < kPanelOutputs; ++i)
      panel[16 * k + i] = i < outputs ? number_of(w[i * stride + k]) : 0.0F;
  }
}

}  // namespace

bool has_panel_unit() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has;
}

bool is_panel_unit_best() {
  static const bool best = has_panel_unit() && !__builtin_cpu_supports("avx512f");
  return best;
}

void multiply_panel(const PanelProduct& p, Ahead& ahead) {
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

template <typename Weight>
void pack_panel(const Weight* w, std::int64_t stride, std::int64_t outputs, std::int64_t width,
                float* panel) {
  pack(w, stride, outputs, width, panel);
}

#else

bool has_panel_unit() { return false; }
bool is_panel_unit_best() { return false; }
void multiply_panel(const PanelProduct&, Ahead&) {}
template <typename Weight>
void pack_panel(const Weight*, std::int64_t, std::int64_t, std::int64_t, float*) {}

#endif

template void pack_panel(const float*, std::int64_t, std::int64_t, std::int64_t, float*);
template void pack_panel(const std::uint16_t*, std::int64_t, std::int64_t, std::int64_t, float*);

}  // namespace evalcar::kernels
