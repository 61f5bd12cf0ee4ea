// Products of many rows on the CPU by kernels of our own, shared by the threads.
#pragma once

#include "evaluator/kernels/matrix_product.h"

namespace evalcar::kernels {

/// Whether this CPU has a unit for which there is such a kernel: tiles, or AVX2 and no more.
bool has_many_rows_kernel();

/// The whole product, by the best unit that there is. An element's bits depend on its row and its
/// output alone, neither on the other rows nor on the threads. Weight: float, or bfloat16's 16
/// bits. Any thread. May throw c10::Error.
template <typename Weight>
void multiply_many_rows(const MatrixProduct<Weight>& whole);

}  // namespace evalcar::kernels
