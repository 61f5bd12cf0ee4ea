#include "evaluator/kernels/tile_product.h"

#include <algorithm>
#include <memory>
#include <new>
#include <numbers>
#include <type_traits>

#include "evaluator/kernels/tile_terms.h"
#include "evaluator/kernels/tile_unit.h"

namespace evalcar::kernels {
namespace {

constexpr std::int64_t kRowBytes = std::int64_t{1} << 19;  // of packed rows: half of a small cache

template <typename Weight>
constexpr std::int64_t kColumnTerms = std::is_same_v<Weight, float> ? kTerms : 1;

template <typename Weight>
constexpr std::int64_t block_bytes(std::int64_t width) {
  return tile_steps(width) * kColumnTerms<Weight> * kTermBytes;
}

}  // namespace

template <typename Weight>
std::int64_t packed_bytes(const TileProduct<Weight>& p) {
  return (p.gate == nullptr ? 1 : 2) * tile_blocks(p.outputs) * block_bytes<Weight>(p.width);
}

template <typename Weight>
std::int64_t packed_row_bytes(const TileProduct<Weight>& p) {
  return tile_blocks(p.rows) * tile_steps(p.width) * kTerms * kTermBytes;
}

std::int64_t tile_rows_at_once(std::int64_t width) {
  const std::int64_t blocks = kRowBytes / (tile_steps(width) * kTerms * kTermBytes);
  return std::max<std::int64_t>(2, blocks) * kTileBlock;
}

#if defined(__x86_64__)

namespace {

struct Freed {
  void operator()(char* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
};
using Buffer = std::unique_ptr<char[], Freed>;

Buffer buffer_of(std::int64_t bytes) {
  return Buffer(new (std::align_val_t{64}) char[static_cast<std::size_t>(bytes)]);
}

/// A block of sums, 16 outputs of it, of which those in `there` exist; with their bias.
struct Sums {
  const float* at;
  __m512 bias;

  EVALCAR_TILES __m512 of(std::int64_t row) const {
    return _mm512_add_ps(_mm512_load_ps(at + row * kTileBlock), bias);
  }
};

EVALCAR_TILES Sums sums_of(const float* block, const float* bias, std::int64_t at,
                           __mmask16 there) {
  return {block + at,
          bias == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(there, bias + at)};
}

EVALCAR_TILES inline __m512 silu(__m512 x) {
  constexpr auto kLog2OfE = static_cast<float>(std::numbers::log2e);
  const __m512 shrunk = power_of_two(_mm512_mul_ps(x, _mm512_set1_ps(-kLog2OfE)));
  return _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1), shrunk));
}

/// One block of results. p: from the block's first row and output on.
template <typename Weight>
EVALCAR_TILES void store_block(const TileProduct<Weight>& p, const float* block,
                               const float* gates) {
  for (std::int64_t at = 0; at < kTileBlock; at += 16) {
    const __mmask16 there = lanes_below(p.outputs - at);
    if (there == 0) return;
    const Sums sums = sums_of(block, p.bias, at, there);
    const Sums gate = sums_of(gates, p.gate_bias, at, there);
    for (std::int64_t m = 0; m < p.rows; ++m) {
      float* const y = p.y + m * p.y_stride + at;
      __m512 sum = sums.of(m);
      if (p.adds) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(there, y), sum);
      if (p.gate != nullptr) sum = _mm512_mul_ps(silu(gate.of(m)), sum);
      _mm512_mask_storeu_ps(y, there, sum);
    }
  }
}

/// One block of outputs. rows, columns, gates: packed, of p's.
template <typename Weight>
EVALCAR_TILES void multiply_column(const TileProduct<Weight>& p, const char* rows,
                                   const char* column, const char* gate) {
  alignas(64) float sums[kTileBlock * kTileBlock];
  alignas(64) float gates[kTileBlock * kTileBlock];
  const std::int64_t steps = tile_steps(p.width);
  for (std::int64_t m = 0; m < p.rows; m += kTileBlock, rows += steps * kTerms * kTermBytes) {
    multiply_blocks<kColumnTerms<Weight>>(rows, column, steps, sums, kTileBlock);
    if (gate != nullptr)
      multiply_blocks<kColumnTerms<Weight>>(rows, gate, steps, gates, kTileBlock);
    store_block(p.rows_from(m, std::min(kTileBlock, p.rows - m)), sums, gates);
  }
}

/// One block of a matrix whose outputs from it on are `outputs`.
template <typename Weight>
EVALCAR_TILES void pack_block(const Weight* w, std::int64_t outputs, std::int64_t width,
                              char* out) {
  pack_columns(w, width, std::min(kTileBlock, outputs), width, out);
}

}  // namespace

template <typename Weight>
EVALCAR_TILES void pack_matrix(const TileProduct<Weight>& p, std::int64_t first, std::int64_t count,
                               char* packed) {
  const std::int64_t bytes = block_bytes<Weight>(p.width);
  char* const gates = packed + tile_blocks(p.outputs) * bytes;
  for (std::int64_t n = first; n < first + count; n += kTileBlock) {
    const std::int64_t at = n / kTileBlock * bytes;
    pack_block(p.w + n * p.width, p.outputs - n, p.width, packed + at);
    if (p.gate != nullptr) pack_block(p.gate + n * p.width, p.outputs - n, p.width, gates + at);
  }
}

template <typename Weight>
EVALCAR_TILES void pack_product_rows(const TileProduct<Weight>& p, std::int64_t first,
                                     std::int64_t count, char* packed) {
  const std::int64_t bytes = tile_steps(p.width) * kTerms * kTermBytes;
  for (std::int64_t m = first; m < first + count; m += kTileBlock) {
    pack_rows(p.x + m * p.x_stride, p.x_stride, std::min(kTileBlock, p.rows - m), p.width,
              packed + m / kTileBlock * bytes);
  }
}

template <typename Weight>
EVALCAR_TILES void multiply_by_tiles(const TileProduct<Weight>& p, const char* packed,
                                     const char* rows) {
  const TileSession session;
  const std::int64_t at_once = rows == nullptr ? tile_rows_at_once(p.width) : p.rows;
  const std::int64_t bytes = block_bytes<Weight>(p.width);
  const Buffer own_rows =
      rows == nullptr ? buffer_of(packed_row_bytes(p.rows_from(0, std::min(at_once, p.rows))))
                      : Buffer();
  const Buffer own = packed == nullptr ? buffer_of(2 * bytes) : Buffer();
  for (std::int64_t m = 0; m < p.rows; m += at_once) {
    const TileProduct<Weight> part = p.rows_from(m, std::min(at_once, p.rows - m));
    if (rows == nullptr) pack_product_rows(part, 0, part.rows, own_rows.get());
    for (std::int64_t n = 0; n < p.outputs; n += kTileBlock) {
      const TileProduct<Weight> block = part.outputs_from(n, std::min(kTileBlock, p.outputs - n));
      const char* column = own.get();
      const char* gate = own.get() + bytes;
      if (packed == nullptr) {
        pack_block(block.w, block.outputs, p.width, own.get());
        if (p.gate != nullptr) pack_block(block.gate, block.outputs, p.width, own.get() + bytes);
      } else {
        column = packed + n / kTileBlock * bytes;
        gate = column + tile_blocks(p.outputs) * bytes;
      }
      multiply_column(block, rows == nullptr ? own_rows.get() : rows, column,
                      p.gate == nullptr ? nullptr : gate);
    }
  }
}

#else

template <typename Weight>
void pack_matrix(const TileProduct<Weight>&, std::int64_t, std::int64_t, char*) {}
template <typename Weight>
void pack_product_rows(const TileProduct<Weight>&, std::int64_t, std::int64_t, char*) {}
template <typename Weight>
void multiply_by_tiles(const TileProduct<Weight>&, const char*, const char*) {}

#endif

template std::int64_t packed_bytes(const TileProduct<float>&);
template std::int64_t packed_bytes(const TileProduct<std::uint16_t>&);
template void pack_matrix(const TileProduct<float>&, std::int64_t, std::int64_t, char*);
template void pack_matrix(const TileProduct<std::uint16_t>&, std::int64_t, std::int64_t, char*);
template std::int64_t packed_row_bytes(const TileProduct<float>&);
template std::int64_t packed_row_bytes(const TileProduct<std::uint16_t>&);
template void pack_product_rows(const TileProduct<float>&, std::int64_t, std::int64_t, char*);
template void pack_product_rows(const TileProduct<std::uint16_t>&, std::int64_t, std::int64_t,
                                char*);
template void multiply_by_tiles(const TileProduct<float>&, const char*, const char*);
template void multiply_by_tiles(const TileProduct<std::uint16_t>&, const char*, const char*);

}  // namespace evalcar::kernels
