#include "evaluator/kernels/panel_product.h"

#include <algorithm>
#include <array>

#include "evaluator/kernels/aligned_memory.h"
#include "evaluator/kernels/lanes.h"
#include "evaluator/kernels/panel_unit.h"
#include "evaluator/kernels/row_passes.h"

namespace evalcar::kernels {
namespace {

static_assert(kPanelOutputs == kLanes);

// Products that are summed up for all rows of the call before the next: 16 KiB of a panel, half of
// the first cache. Of two together each number is read once for twelve rows, from the second at
// worst.
constexpr std::int64_t kDepth = 256;

/// Of panels that are packed: the part of these that starts at k, or the first of those behind.
Ahead next_part(const PanelProduct& whole, std::int64_t k) {
  const std::int64_t left = whole.width - k;
  const float* const next =
      left > 0 ? whole.panel + k * kPanelOutputs : whole.panel + whole.panels * whole.panel_stride;
  const std::int64_t depth = std::min(kDepth, left > 0 ? left : whole.width);
  const auto at = reinterpret_cast<std::uintptr_t>(next);
  constexpr std::uintptr_t kBytes = kPanelOutputs * sizeof(float);
  return {at, at + static_cast<std::uintptr_t>(depth) * kBytes,
          static_cast<std::uintptr_t>(whole.panel_stride) * sizeof(float), kBytes};
}

/// Of a matrix whose panels are packed on the way: the rows behind those at w.
template <typename Weight>
Ahead next_rows(const Weight* w, std::int64_t width, std::int64_t panels) {
  const std::int64_t of_panel = kPanelOutputs * width;
  const auto bytes = static_cast<std::uintptr_t>(of_panel) * sizeof(Weight);
  const auto at = reinterpret_cast<std::uintptr_t>(w) + static_cast<std::uintptr_t>(panels) * bytes;
  return {at, at + bytes, bytes, kPanelOutputs * sizeof(Weight)};
}

/// All rows times one or two panels. sums: (rows, 16 · panels). ahead: what is asked for meanwhile;
/// or null, for the next part of the panels.
void sum_up(const PanelKernels& kernels, const PanelProduct& whole, const PanelResult& result,
            Ahead* ahead) {
  std::int64_t k = 0;
  do {  // also where there is no product: the bias is the result
    PanelProduct part = whole;
    part.x += k;
    part.panel += k * kPanelOutputs;
    part.width = std::min(kDepth, whole.width - k);
    part.adds = k > 0;
    part.result = k + kDepth < whole.width ? nullptr : &result;
    Ahead next = next_part(whole, k + part.width);
    kernels.multiply(part, ahead == nullptr ? next : *ahead);
    k += kDepth;
  } while (k < whole.width);
}

/// The first `outputs` of each row's sums become results.
template <typename Weight>
EVALCAR_PANELS void store_results(const MatrixProduct<Weight>& p, const float* sums,
                                  std::int64_t stride) {
  for (std::int64_t m = 0; m < p.rows; ++m) {
    float* const y = p.y + m * p.y_stride;
    const float* const from = sums + m * stride;
    if (p.outputs == stride) {
      for (std::int64_t i = 0; i < stride; i += kPanelOutputs) {
        Lanes sum;
        load(from + i, sum);
        store(sum, y + i);
      }
    } else {
      for (std::int64_t i = 0; i < p.outputs; ++i) y[i] = p.adds ? from[i] + y[i] : from[i];
    }
  }
}

/// The panels' bias, where there is one, with zeros up to whole panels.
struct PanelBias {
  PanelBias(const float* bias, std::int64_t outputs) : there(bias != nullptr) {
    if (there) std::copy_n(bias, outputs, values.begin());
  }
  const float* get() const { return there ? values.data() : nullptr; }

  std::array<float, kMostPanels * kPanelOutputs> values{};
  bool there;
};

}  // namespace

template <typename Weight>
std::int64_t panel_floats(const MatrixProduct<Weight>& p) {
  return (p.gate == nullptr ? 1 : 2) * panels_of(p.outputs) * kPanelOutputs * p.width;
}

template <typename Weight>
void pack_panels(const MatrixProduct<Weight>& p, std::int64_t first, std::int64_t count,
                 float* panels) {
  float* const gates = panels + panels_of(p.outputs) * kPanelOutputs * p.width;
  for (std::int64_t n = first; n < first + count; n += kPanelOutputs) {
    const std::int64_t outputs = std::min(kPanelOutputs, p.outputs - n);
    pack_panel(p.w + n * p.width, p.width, outputs, p.width, panels + n * p.width);
    if (p.gate != nullptr)
      pack_panel(p.gate + n * p.width, p.width, outputs, p.width, gates + n * p.width);
  }
}

template <typename Weight>
void multiply_by_panels(const MatrixProduct<Weight>& p, const float* panels,
                        const PanelKernels& kernels) {
  const std::int64_t together = kernels.panels * kPanelOutputs;
  const std::int64_t at_once = panels == nullptr ? p.rows : std::min(p.rows, kPanelRowsAtOnce);
  const std::int64_t numbers = at_once * together;
  const auto sums = aligned_memory<float>(2 * numbers);
  const auto own = panels == nullptr
                       ? aligned_memory<float>(panel_floats(p.outputs_from(0, together)))
                       : AlignedMemory<float>();
  for (std::int64_t m = 0; m < p.rows; m += at_once) {
    const MatrixProduct<Weight> rows = p.rows_from(m, std::min(at_once, p.rows - m));
    for (std::int64_t n = 0; n < p.outputs; n += together) {
      const auto part = rows.outputs_from(n, std::min(together, p.outputs - n));
      if (panels == nullptr) pack_panels(part, 0, part.outputs, own.get());
      const float* const panel = panels == nullptr ? own.get() : panels + n * p.width;
      const std::int64_t stride = panels_of(part.outputs) * kPanelOutputs;
      const std::int64_t to_gate =
          panels == nullptr ? stride * p.width : panels_of(p.outputs) * kPanelOutputs * p.width;
      const auto sum = [&](const Weight* w, const float* of, float* to, const PanelResult& result) {
        Ahead ahead = next_rows(w, p.width, kernels.panels);
        sum_up(kernels,
               {.x = part.x,
                .x_stride = p.x_stride,
                .rows = part.rows,
                .panel = of,
                .panels = stride / kPanelOutputs,
                .panel_stride = kPanelOutputs * p.width,
                .width = p.width,
                .sums = to,
                .stride = stride},
               result, panels == nullptr ? &ahead : nullptr);
      };
      const PanelBias bias(part.bias, part.outputs);
      const bool direct = p.gate == nullptr && part.outputs == stride;
      sum(part.w, panel, sums.get(),
          direct ? PanelResult{part.y, p.y_stride, bias.get(), p.adds}
                 : PanelResult{sums.get(), stride, bias.get()});
      if (direct) continue;
      if (p.gate != nullptr) {
        const PanelBias gate_bias(part.gate_bias, part.outputs);
        float* const gates = sums.get() + numbers;
        sum(part.gate, panel + to_gate, gates, {gates, stride, gate_bias.get()});
        gate_numbers(gates, sums.get(), part.rows * stride);
      }
      store_results(part, sums.get(), stride);
    }
  }
}

template std::int64_t panel_floats(const MatrixProduct<float>&);
template std::int64_t panel_floats(const MatrixProduct<std::uint16_t>&);
template void pack_panels(const MatrixProduct<float>&, std::int64_t, std::int64_t, float*);
template void pack_panels(const MatrixProduct<std::uint16_t>&, std::int64_t, std::int64_t, float*);
template void multiply_by_panels(const MatrixProduct<float>&, const float*, const PanelKernels&);
template void multiply_by_panels(const MatrixProduct<std::uint16_t>&, const float*,
                                 const PanelKernels&);

}  // namespace evalcar::kernels
