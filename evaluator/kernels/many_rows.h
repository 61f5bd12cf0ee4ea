// Products of many rows on the CPU by kernels of our own, shared by the threads.
#pragma once

#include <cstdint>

#include "evaluator/kernels/matrix_product.h"

namespace evalcar::kernels {

/// Whether this CPU has a unit for which there is such a kernel: tiles, or AVX2.
bool has_many_rows_kernel();

/// Up to so many rows the row kernels are to be used before it, for weights in float32 and (`half`)
/// in bfloat16. Where has_many_rows_kernel().
std::int64_t rows_before_many(bool half);

/// The whole product, by the best unit that there is. An element's bits depend on its row and its
/// output alone, neither on the other rows nor on the threads. Weight: float, or bfloat16's 16
/// bits. Only where has_many_rows_kernel(). Any thread. May throw c10::Error or std::bad_alloc.
template <typename Weight>
void multiply_many_rows(const MatrixProduct<Weight>& whole);

}  // namespace evalcar::kernels
