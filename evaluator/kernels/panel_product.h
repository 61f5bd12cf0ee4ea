// Many rows times a matrix in float32 by panels (panel_unit.h). No libtorch.
#pragma once

#include <cstdint>

#include "evaluator/kernels/matrix_product.h"
#include "evaluator/kernels/panel_unit.h"

namespace evalcar::kernels {

/// Rows that go over one panel after the other: they stay in the second cache.
constexpr std::int64_t kPanelRowsAtOnce = 48;

/// Floats of a product's matrix, and its gate's, as panels.
template <typename Weight>
std::int64_t panel_floats(const MatrixProduct<Weight>& p);

/// Packs outputs [first, first + count) of a product's matrices to their place in `panels`: 64-byte
/// aligned, panel_floats(). `first` is a multiple of kPanelOutputs.
template <typename Weight>
void pack_panels(const MatrixProduct<Weight>& p, std::int64_t first, std::int64_t count,
                 float* panels);

/// The whole product on this thread. `panels`: by pack_panels(), or null, and each is packed on the
/// way, which is better where the rows are few. An element's bits depend on its row and its output
/// alone. Only where has_panel_unit(). May throw std::bad_alloc.
template <typename Weight>
void multiply_by_panels(const MatrixProduct<Weight>& p, const float* panels,
                        const PanelKernels& kernels = panel_kernels().front());

}  // namespace evalcar::kernels
