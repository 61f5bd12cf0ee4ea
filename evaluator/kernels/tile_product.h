// Many rows times a matrix in float32 on the CPU's tile unit (tile_unit.h). No libtorch.
#pragma once

#include <cstdint>

namespace evalcar::kernels {

/// What becomes of s[m][n] = Σ x[m · x_stride + k] · w[n · width + k] (+ bias[n]): it is y[m][n];
/// or, with `adds`, added to it; or, with a gate g made of x like s, y[m][n] = silu(g[m][n]) ·
/// s[m][n].
template <typename Weight>
struct TileProduct {
  const float* x = nullptr;  ///< (rows, width)
  std::int64_t x_stride = 0;
  std::int64_t rows = 0;
  const Weight* w = nullptr;  ///< (outputs, width): float, or bfloat16's 16 bits
  std::int64_t outputs = 0;
  std::int64_t width = 0;
  const float* bias = nullptr;       ///< (outputs), or null
  const Weight* gate = nullptr;      ///< (outputs, width), or null
  const float* gate_bias = nullptr;  ///< (outputs), or null
  bool adds = false;                 ///< not with a gate
  float* y = nullptr;
  std::int64_t y_stride = 0;  ///< floats from row to row

  /// The product of outputs [first, first + count) alone.
  TileProduct outputs_from(std::int64_t first, std::int64_t count) const {
    const auto moved = [first](auto* at, std::int64_t by) {
      return at == nullptr ? nullptr : at + first * by;
    };
    TileProduct part = *this;
    part.outputs = count;
    part.w = moved(w, width);
    part.bias = moved(bias, 1);
    part.gate = moved(gate, width);
    part.gate_bias = moved(gate_bias, 1);
    part.y = moved(y, 1);
    return part;
  }
  TileProduct rows_from(std::int64_t first, std::int64_t count) const {
    TileProduct part = *this;
    part.rows = count;
    part.x += first * x_stride;
    part.y += first * y_stride;
    return part;
  }
};

/// Bytes of a product's matrix, and its gate's, as the unit reads them.
template <typename Weight>
std::int64_t packed_bytes(const TileProduct<Weight>& p);

/// Rows that one thread should take at once: as many as its cache holds.
std::int64_t tile_rows_at_once(std::int64_t width);

/// Packs outputs [first, first + count) of a product's matrices to their place in `packed`: 64-byte
/// aligned, packed_bytes(). `first` is a multiple of kTileBlock.
template <typename Weight>
void pack_matrix(const TileProduct<Weight>& p, std::int64_t first, std::int64_t count,
                 char* packed);

/// Bytes of a product's rows as the unit reads them.
template <typename Weight>
std::int64_t packed_row_bytes(const TileProduct<Weight>& p);

/// Packs rows [first, first + count) to their place in `packed`: 64-byte aligned,
/// packed_row_bytes(). `first` is a multiple of kTileBlock.
template <typename Weight>
void pack_product_rows(const TileProduct<Weight>& p, std::int64_t first, std::int64_t count,
                       char* packed);

/// The whole product on this thread. `packed`: by pack_matrix(), or null, and each block of outputs
/// is packed on the way, which is better where the rows go at once. `rows`: by pack_product_rows(),
/// or null, and they are packed here. An element's bits depend on its row and its output alone.
/// Only where has_tile_unit().
template <typename Weight>
void multiply_by_tiles(const TileProduct<Weight>& p, const char* packed,
                       const char* rows = nullptr);

}  // namespace evalcar::kernels
