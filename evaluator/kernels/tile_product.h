// Many rows times a matrix in float32 on the CPU's tile unit (tile_unit.h). No libtorch.
#pragma once

#include <cstdint>

#include "evaluator/kernels/matrix_product.h"

namespace evalcar::kernels {

/// Bytes of a product's matrix, and its gate's, as the unit reads them.
template <typename Weight>
std::int64_t packed_bytes(const MatrixProduct<Weight>& p);

/// Rows that one thread should take at once: as many as its cache holds.
std::int64_t tile_rows_at_once(std::int64_t width);

/// Packs outputs [first, first + count) of a product's matrices to their place in `packed`: 64-byte
/// aligned, packed_bytes(). `first` is a multiple of kTileBlock.
template <typename Weight>
void pack_matrix(const MatrixProduct<Weight>& p, std::int64_t first, std::int64_t count,
                 char* packed);

/// Bytes of a product's rows as the unit reads them.
template <typename Weight>
std::int64_t packed_row_bytes(const MatrixProduct<Weight>& p);

/// Packs rows [first, first + count) to their place in `packed`: 64-byte aligned,
/// packed_row_bytes(). `first` is a multiple of kTileBlock.
template <typename Weight>
void pack_product_rows(const MatrixProduct<Weight>& p, std::int64_t first, std::int64_t count,
                       char* packed);

/// The whole product on this thread. `packed`: by pack_matrix(), or null, and each block of outputs
/// is packed on the way, which is better where the rows go at once. `rows`: by pack_product_rows(),
/// or null, and they are packed here. An element's bits depend on its row and its output alone.
/// Only where has_tile_unit().
template <typename Weight>
void multiply_by_tiles(const MatrixProduct<Weight>& p, const char* packed,
                       const char* rows = nullptr);

}  // namespace evalcar::kernels
