// Products by the CPU's AVX2: panels of 16 outputs, of which a block of rows is summed up in
// registers. What both kernels made of it share, the matrix product and attention. No libtorch.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#define EVALCAR_PANELS [[gnu::target("avx2,fma")]]
#else
#define EVALCAR_PANELS
#endif

namespace evalcar::kernels {

/// Whether this CPU has AVX2 and fused multiply-adds.
bool has_panel_unit();
/// Whether it has that and no more: where there is AVX-512, libtorch's own products were not
/// compared.
bool is_panel_unit_best();

/// Outputs of a panel.
constexpr std::int64_t kPanelOutputs = 16;
constexpr std::int64_t panels_of(std::int64_t outputs) {
  return (outputs + kPanelOutputs - 1) / kPanelOutputs;
}

/// Where sums go that are complete: result = sum (+ bias) (+ result, with `adds`).
struct PanelResult {
  float* y = nullptr;  ///< (rows, 16), of any alignment
  std::int64_t stride = 0;
  const float* bias = nullptr;  ///< (16), or null
  bool adds = false;
};

/// sums[m · stride + i] = Σ x[m · x_stride + k] · panel[k · 16 + i] for all m < rows and i < 16,
/// or, with `adds`, added to it. Each call's sum is one chain of fused multiply-adds from 0 on, in
/// the order of k: for sums of many products, to be as near to the true ones as a BLAS's, add up
/// several. With `result` they are complete and go there, which may be `sums`; that is read then
/// where `adds` is set.
struct PanelProduct {
  const float* x = nullptr;  ///< (rows, width)
  std::int64_t x_stride = 0;
  std::int64_t rows = 0;
  const float* panel = nullptr;  ///< (width, 16); of 32-byte alignment, as `sums` and `stride` are
  std::int64_t width = 0;
  float* sums = nullptr;  ///< (rows, 16)
  std::int64_t stride = kPanelOutputs;
  bool adds = false;
  const PanelResult* result = nullptr;
};

/// Memory that is read next: asked for beside products, since a matrix comes slower from memory
/// than a few rows are multiplied by it.
struct Ahead {
  std::uintptr_t next = 0;  ///< what lies there is asked for, and never read
  std::uintptr_t end = 0;
};

/// Nothing: only what is read anyway.
inline Ahead nothing_ahead(const PanelProduct& p) {
  const auto there = reinterpret_cast<std::uintptr_t>(p.panel);
  return {there, there};
}

/// `ahead` moves on. Only where has_panel_unit(). Thread-safe.
void multiply_panel(const PanelProduct& p, Ahead& ahead);
inline void multiply_panel(const PanelProduct& p) {
  Ahead ahead = nothing_ahead(p);
  multiply_panel(p, ahead);
}

/// Makes a panel of the `outputs` rows of a matrix that start at w, w + stride and so on; zeros
/// where there are fewer than 16. Weight: float, or bfloat16's 16 bits. Only where
/// has_panel_unit().
template <typename Weight>
void pack_panel(const Weight* w, std::int64_t stride, std::int64_t outputs, std::int64_t width,
                float* panel);

}  // namespace evalcar::kernels
