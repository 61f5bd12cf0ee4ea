#include "evaluator/kernels/tile_product.h"

#include <algorithm>
#include <numbers>
#include <type_traits>

#include "evaluator/kernels/aligned_memory.h"
#include "evaluator/kernels/tile_terms.h"
#include "evaluator/kernels/tile_unit.h"

namespace evalcar::kernels {
namespace {

constexpr std::int64_t kRowBytes = std::int64_t{1} << 19;  // of packed rows: half of a small cache

// What a block of outputs takes, at most, to stay where the next block of rows finds it at once.
// Wider ones are asked for ahead.
constexpr std::int64_t kFirstCache = std::int64_t{48} << 10U;

template <typename Weight>
constexpr std::int64_t kColumnTerms = std::is_same_v<Weight, float> ? kTerms : 1;

template <typename Weight>
constexpr std::int64_t block_bytes(std::int64_t width) {
  return tile_steps(width) * kColumnTerms<Weight> * kTermBytes;
}

}  // namespace

template <typename Weight>
std::int64_t packed_bytes(const MatrixProduct<Weight>& p) {
  return (p.gate == nullptr ? 1 : 2) * tile_blocks(p.outputs) * block_bytes<Weight>(p.width);
}

template <typename Weight>
std::int64_t packed_row_bytes(const MatrixProduct<Weight>& p) {
  return tile_blocks(p.rows) * tile_steps(p.width) * kTerms * kTermBytes;
}

std::int64_t tile_rows_at_once(std::int64_t width) {
  const std::int64_t blocks = kRowBytes / (tile_steps(width) * kTerms * kTermBytes);
  return std::max<std::int64_t>(2, blocks) * kTileBlock;
}

#if defined(__x86_64__)

namespace {

EVALCAR_TILES inline __m512 silu(__m512 x) {
  constexpr auto kLog2OfE = static_cast<float>(std::numbers::log2e);
  const __m512 shrunk = power_of_two(_mm512_mul_ps(x, _mm512_set1_ps(-kLog2OfE)));
  return _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1), shrunk));
}

/// Makes results of a block of sums, row by row. To be compiled into a kernel, where it runs beside
/// the products of the next block: y lies far apart, and is waited for longer than a block of few
/// steps takes the unit.
template <typename Weight>
class Storing {
 public:
  /// Nothing to store.
  EVALCAR_TILES EVALCAR_INLINE Storing() = default;
  /// p: of the block alone, at most kTileBlock rows and outputs. sums, gates: (kTileBlock,
  /// kTileBlock), which stay until finish(); gates only where p has a gate.
  EVALCAR_TILES EVALCAR_INLINE Storing(const MatrixProduct<Weight>& p, const float* sums,
                                       const float* gates)
      : sums_(sums),
        gates_(p.gate == nullptr ? nullptr : gates),
        y_(p.y),
        stride_(p.y_stride),
        rows_(p.rows),
        left_(p.rows),
        adds_(p.adds) {
    for (int half = 0; half < 2; ++half) {
      there_[half] = lanes_below(p.outputs - 16 * half);
      bias_[half] = numbers_of(p.bias, half);
      gate_bias_[half] = numbers_of(p.gate_bias, half);
    }
  }

  /// In so many calls from now on.
  EVALCAR_TILES EVALCAR_INLINE void spread(std::int64_t calls) {
    calls_ = std::max<std::int64_t>(1, calls);
    due_ = 0;
  }
  EVALCAR_TILES EVALCAR_INLINE void operator()() {
    for (due_ += rows_; due_ >= calls_; due_ -= calls_) {
      if (left_ > 0) store();
    }
  }
  EVALCAR_TILES EVALCAR_INLINE void finish() {
    while (left_ > 0) store();
  }

 private:
  EVALCAR_TILES EVALCAR_INLINE __m512 numbers_of(const float* all, int half) const {
    return all == nullptr || there_[half] == 0
               ? _mm512_setzero_ps()
               : _mm512_maskz_loadu_ps(there_[half], all + 16 * half);
  }
  EVALCAR_TILES EVALCAR_INLINE void store() {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      if (there_[half] == 0) break;
      float* const y = y_ + 16 * half;
      __m512 sum = _mm512_add_ps(_mm512_load_ps(sums_ + 16 * half), bias_[half]);
      if (adds_) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(there_[half], y), sum);
      if (gates_ != nullptr) {
        const __m512 gate = _mm512_add_ps(_mm512_load_ps(gates_ + 16 * half), gate_bias_[half]);
        sum = _mm512_mul_ps(silu(gate), sum);
      }
      _mm512_mask_storeu_ps(y, there_[half], sum);
    }
    sums_ += kTileBlock;
    if (gates_ != nullptr) gates_ += kTileBlock;
    --left_;
    if (left_ > 0) y_ += stride_;
  }

  const float* sums_ = nullptr;
  const float* gates_ = nullptr;
  float* y_ = nullptr;  // of the row that is next
  std::int64_t stride_ = 0, rows_ = 0, left_ = 0;
  std::int64_t calls_ = 1, due_ = 0;
  bool adds_ = false;
  __mmask16 there_[2] = {};  // outputs, by halves
  __m512 bias_[2] = {}, gate_bias_[2] = {};
};

/// What goes beside the products of a block: results of the block before are stored, and, where
/// `asks`, the next step's rows and columns are asked for.
template <typename Weight>
class Beside {
 public:
  EVALCAR_TILES EVALCAR_INLINE Beside(Storing<Weight>& storing, const char* rows,
                                      const char* columns, bool asks)
      : storing_(storing),
        rows_(reinterpret_cast<std::uintptr_t>(rows) + kTerms * kTermBytes),
        columns_(reinterpret_cast<std::uintptr_t>(columns) + kColumnTerms<Weight> * kTermBytes),
        asks_(asks) {}

  EVALCAR_TILES EVALCAR_INLINE void operator()() {
    storing_();
    if (!asks_) return;
    ask<kTerms * kTermBytes>(rows_);
    ask<kColumnTerms<Weight> * kTermBytes>(columns_);
    ++calls_;
  }

 private:
  /// A call's share of the `kBytes` of a step, which lie one after the other from there on.
  template <std::int64_t kBytes>
  EVALCAR_TILES EVALCAR_INLINE void ask(std::uintptr_t begin) const {
    constexpr std::int64_t kCalls = turns_beside<kColumnTerms<Weight>>(1);
    constexpr std::int64_t kLines = (kBytes / 64 + kCalls - 1) / kCalls;
    const auto from = begin + static_cast<std::uintptr_t>(calls_ * kBytes / kCalls);
#pragma GCC unroll 32
    for (std::int64_t i = 0; i < kLines; ++i)
      _mm_prefetch(reinterpret_cast<const char*>(from + static_cast<std::uintptr_t>(64 * i)),
                   _MM_HINT_T0);
  }

  Storing<Weight>& storing_;
  std::uintptr_t rows_, columns_;  // what is behind the last of them is asked for, and never read
  std::int64_t calls_ = 0;
  bool asks_;
};

/// The sums of two blocks: of the one that is multiplied, and of the one before.
struct BlockSums {
  alignas(64) float sums[2][kTileBlock * kTileBlock];
  alignas(64) float gates[2][kTileBlock * kTileBlock];
  int next = 0;
};

/// One block of outputs. rows, columns, gates: packed, of p's. What is stored last is so beside
/// what is multiplied next, or by finish().
template <typename Weight>
EVALCAR_TILES EVALCAR_INLINE inline void multiply_column(const MatrixProduct<Weight>& p,
                                                         const char* rows, const char* column,
                                                         const char* gate, BlockSums& blocks,
                                                         Storing<Weight>& storing) {
  constexpr std::int64_t kColumns = kColumnTerms<Weight>;
  const std::int64_t steps = tile_steps(p.width);
  const bool asks = block_bytes<Weight>(p.width) > kFirstCache;
  for (std::int64_t m = 0; m < p.rows; m += kTileBlock, rows += steps * kTerms * kTermBytes) {
    float* const sums = blocks.sums[blocks.next];
    float* const gates = blocks.gates[blocks.next];
    blocks.next = 1 - blocks.next;
    storing.spread(turns_beside<kColumns>(gate == nullptr ? steps : 2 * steps));
    Beside<Weight> beside(storing, rows, column, asks);
    multiply_blocks<kColumns>(rows, column, steps, sums, kTileBlock, beside);
    if (gate != nullptr) {
      Beside<Weight> beside_gates(storing, rows, gate, asks);
      multiply_blocks<kColumns>(rows, gate, steps, gates, kTileBlock, beside_gates);
    }
    storing.finish();
    storing = Storing<Weight>(p.rows_from(m, std::min(kTileBlock, p.rows - m)), sums, gates);
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
EVALCAR_TILES void pack_matrix(const MatrixProduct<Weight>& p, std::int64_t first,
                               std::int64_t count, char* packed) {
  const std::int64_t bytes = block_bytes<Weight>(p.width);
  char* const gates = packed + tile_blocks(p.outputs) * bytes;
  for (std::int64_t n = first; n < first + count; n += kTileBlock) {
    const std::int64_t at = n / kTileBlock * bytes;
    pack_block(p.w + n * p.width, p.outputs - n, p.width, packed + at);
    if (p.gate != nullptr) pack_block(p.gate + n * p.width, p.outputs - n, p.width, gates + at);
  }
}

template <typename Weight>
EVALCAR_TILES void pack_product_rows(const MatrixProduct<Weight>& p, std::int64_t first,
                                     std::int64_t count, char* packed) {
  const std::int64_t bytes = tile_steps(p.width) * kTerms * kTermBytes;
  for (std::int64_t m = first; m < first + count; m += kTileBlock) {
    pack_rows(p.x + m * p.x_stride, p.x_stride, std::min(kTileBlock, p.rows - m), p.width,
              packed + m / kTileBlock * bytes);
  }
}

namespace {

// The definition of a template that is declared elsewhere is not compiled for the unit, and nothing
// can be compiled into it.
template <typename Weight>
EVALCAR_TILES void multiply_parts(const MatrixProduct<Weight>& p, const char* packed,
                                  const char* rows) {
  const TileSession session;
  const std::int64_t at_once = rows == nullptr ? tile_rows_at_once(p.width) : p.rows;
  const std::int64_t bytes = block_bytes<Weight>(p.width);
  const AlignedMemory<char> own_rows =
      rows == nullptr
          ? aligned_memory<char>(packed_row_bytes(p.rows_from(0, std::min(at_once, p.rows))))
          : AlignedMemory<char>();
  const AlignedMemory<char> own =
      packed == nullptr ? aligned_memory<char>(2 * bytes) : AlignedMemory<char>();
  BlockSums blocks;
  Storing<Weight> storing;
  for (std::int64_t m = 0; m < p.rows; m += at_once) {
    const MatrixProduct<Weight> part = p.rows_from(m, std::min(at_once, p.rows - m));
    if (rows == nullptr) pack_product_rows(part, 0, part.rows, own_rows.get());
    for (std::int64_t n = 0; n < p.outputs; n += kTileBlock) {
      const MatrixProduct<Weight> block = part.outputs_from(n, std::min(kTileBlock, p.outputs - n));
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
                      p.gate == nullptr ? nullptr : gate, blocks, storing);
    }
  }
  storing.finish();
}

}  // namespace

template <typename Weight>
void multiply_by_tiles(const MatrixProduct<Weight>& p, const char* packed, const char* rows) {
  multiply_parts(p, packed, rows);
}

#else

template <typename Weight>
void pack_matrix(const MatrixProduct<Weight>&, std::int64_t, std::int64_t, char*) {}
template <typename Weight>
void pack_product_rows(const MatrixProduct<Weight>&, std::int64_t, std::int64_t, char*) {}
template <typename Weight>
void multiply_by_tiles(const MatrixProduct<Weight>&, const char*, const char*) {}

#endif

template std::int64_t packed_bytes(const MatrixProduct<float>&);
template std::int64_t packed_bytes(const MatrixProduct<std::uint16_t>&);
template void pack_matrix(const MatrixProduct<float>&, std::int64_t, std::int64_t, char*);
template void pack_matrix(const MatrixProduct<std::uint16_t>&, std::int64_t, std::int64_t, char*);
template std::int64_t packed_row_bytes(const MatrixProduct<float>&);
template std::int64_t packed_row_bytes(const MatrixProduct<std::uint16_t>&);
template void pack_product_rows(const MatrixProduct<float>&, std::int64_t, std::int64_t, char*);
template void pack_product_rows(const MatrixProduct<std::uint16_t>&, std::int64_t, std::int64_t,
                                char*);
template void multiply_by_tiles(const MatrixProduct<float>&, const char*, const char*);
template void multiply_by_tiles(const MatrixProduct<std::uint16_t>&, const char*, const char*);

}  // namespace evalcar::kernels
