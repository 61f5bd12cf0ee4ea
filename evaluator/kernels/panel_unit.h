// Products by the CPU's vector instructions (AVX-512, or AVX2): panels of 16 outputs, of which a
// block of rows is summed up in registers. What both kernels made of it share, the matrix product
// and attention. No libtorch.
#pragma once

#include <cstdint>
#include <span>

#if defined(__x86_64__)
#include <immintrin.h>
#define EVALCAR_PANELS [[gnu::target("avx2,fma")]]
#else
#define EVALCAR_PANELS
#endif

namespace evalcar::kernels {

/// Whether this CPU has AVX2 and fused multiply-adds.
bool has_panel_unit();

/// Outputs of a panel.
constexpr std::int64_t kPanelOutputs = 16;
/// Panels that are multiplied together by any kernel, at most.
constexpr std::int64_t kMostPanels = 2;
constexpr std::int64_t panels_of(std::int64_t outputs) {
  return (outputs + kPanelOutputs - 1) / kPanelOutputs;
}

/// Where sums go that are complete: result = sum (+ bias) (+ result, with `adds`).
struct PanelResult {
  float* y = nullptr;  ///< (rows, 16 · panels), of any alignment
  std::int64_t stride = 0;
  const float* bias = nullptr;  ///< (16 · panels), or null
  bool adds = false;
};

/// sums[m · stride + i] = Σ x[m · x_stride + k] · panel[k · 16 + i] for all m < rows and i < 16,
/// or, with `adds`, added to it; so for each of the panels, whose sums stand beside each other.
/// Each call's sum is one chain of fused multiply-adds from 0 on, in the order of k, and so the
/// same bits by any kernel: for sums of many products, to be as near to the true ones as a BLAS's,
/// add up several. With `result` they are complete and go there, which may be `sums`; that is read
/// then where `adds` is set.
struct PanelProduct {
  const float* x = nullptr;  ///< (rows, width)
  std::int64_t x_stride = 0;
  std::int64_t rows = 0;
  const float* panel = nullptr;   ///< (width, 16); of 64-byte alignment, as `sums` is
  std::int64_t panels = 1;        ///< as many as the kernel takes, or fewer
  std::int64_t panel_stride = 0;  ///< floats from the first to the second: a multiple of 16
  std::int64_t width = 0;
  float* sums = nullptr;                ///< (rows, 16 · panels)
  std::int64_t stride = kPanelOutputs;  ///< of `sums`: a multiple of 16
  bool adds = false;
  const PanelResult* result = nullptr;
};

/// Memory that is read next: asked for beside products, since a matrix comes slower from memory
/// than a few rows are multiplied by it.
struct Ahead {
  std::uintptr_t next = 0;   ///< what lies there is asked for, and never read
  std::uintptr_t end = 0;    ///< of that; then what lies there, again and again
  std::uintptr_t other = 0;  ///< so many bytes further, beside two panels, the same
  /// Of it, for each number of a row; a kernel that takes one panel asks at one rate whatever it
  /// is.
  std::uintptr_t bytes = 0;
};

/// Nothing: only what is read anyway.
inline Ahead nothing_ahead(const PanelProduct& p) {
  const auto there = reinterpret_cast<std::uintptr_t>(p.panel);
  return {there, there};
}

/// What is written for one kind of vector instructions. Thread-safe.
struct PanelKernels {
  const char* name;     ///< "avx512" | "avx2"
  std::int64_t panels;  ///< that it takes together, at most
  /// `ahead` moves on.
  void (*multiply)(const PanelProduct& p, Ahead& ahead);
  /// Scores of a query become weights: 2^(score - the largest so far), in place. What there is of
  /// its sums (dim) and of the weights' totals (16 parts) is brought to that base. A score that is
  /// no number is not the largest, and its weight is none, either. scores: (width); width and dim
  /// are multiples of 16. Of finite scores and hidden ones the same bits by any kernel.
  void (*weigh)(float* scores, std::int64_t width, float& largest, float* totals, float* sums,
                std::int64_t dim);
};

/// All that this CPU can run, the best first; none where there is no has_panel_unit(). Any thread.
std::span<const PanelKernels> panel_kernels();

/// Makes a panel of the `outputs` rows of a matrix that start at w, w + stride and so on; zeros
/// where there are fewer than 16. Weight: float, or bfloat16's 16 bits. Only where
/// has_panel_unit().
template <typename Weight>
void pack_panel(const Weight* w, std::int64_t stride, std::int64_t outputs, std::int64_t width,
                float* panel);

}  // namespace evalcar::kernels
