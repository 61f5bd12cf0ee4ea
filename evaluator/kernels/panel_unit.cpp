#include "evaluator/kernels/panel_unit.h"

#include <bit>
#include <vector>

#include "evaluator/kernels/panel_avx2.h"
#include "evaluator/kernels/panel_avx512.h"

namespace evalcar::kernels {

#if defined(__x86_64__)

namespace {

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

std::vector<PanelKernels> usable() {
  std::vector<PanelKernels> kernels;
  if (!has_panel_unit()) return kernels;
  if (__builtin_cpu_supports("avx512f")) kernels.push_back(panels_of_avx512());
  kernels.push_back(panels_of_avx2());
  return kernels;
}

}  // namespace

bool has_panel_unit() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has;
}

std::span<const PanelKernels> panel_kernels() {
  static const std::vector<PanelKernels> kernels = usable();
  return kernels;
}

template <typename Weight>
void pack_panel(const Weight* w, std::int64_t stride, std::int64_t outputs, std::int64_t width,
                float* panel) {
  pack(w, stride, outputs, width, panel);
}

#else

bool has_panel_unit() { return false; }
std::span<const PanelKernels> panel_kernels() { return {}; }
template <typename Weight>
void pack_panel(const Weight*, std::int64_t, std::int64_t, std::int64_t, float*) {}

#endif

template void pack_panel(const float*, std::int64_t, std::int64_t, std::int64_t, float*);
template void pack_panel(const std::uint16_t*, std::int64_t, std::int64_t, std::int64_t, float*);

}  // namespace evalcar::kernels
