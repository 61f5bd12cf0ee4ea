// Pieces of the kernels for the tile unit, to be compiled into them. x86-64 only; to be run only
// where has_tile_unit().
#pragma once

#if defined(__x86_64__)

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // of g++ 12's own header: its bug 105593
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <algorithm>
#include <array>
#include <cstdint>

#include "evaluator/kernels/tile_unit.h"

#define EVALCAR_TILES \
  [[gnu::target("amx-tile,amx-bf16,avx512f,avx512dq,avx512bw,avx512vl,avx512bf16")]]
/// For what runs beside products: inlined, its numbers stay in registers. Called, with them in
/// memory, nothing of it goes beside the products.
#define EVALCAR_INLINE [[gnu::always_inline]]

namespace evalcar::kernels {

/// g++ 12 does not know that tiles are loaded from memory: without this it may leave out what is
/// stored there, or store it later.
inline void settle_memory(const void* at) { asm volatile("" ::"r"(at) : "memory"); }

/// All eight tiles are 16 rows of 64 bytes while it lives. A thread's own.
class TileSession {
 public:
  EVALCAR_TILES TileSession() {
    Configuration all;
    for (int tile = 0; tile < 8; ++tile) {
      all.row_bytes[tile] = 64;
      all.rows[tile] = 16;
    }
    settle_memory(&all);
    _tile_loadconfig(&all);
  }
  EVALCAR_TILES ~TileSession() { _tile_release(); }
  TileSession(const TileSession&) = delete;
  TileSession& operator=(const TileSession&) = delete;

 private:
  struct alignas(64) Configuration {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t row_bytes[16] = {};
    std::uint8_t rows[16] = {};
  };
};

/// 32 numbers as bfloat16: their terms, in order of size. In which order the numbers of a step go
/// is of no matter as long as rows and columns have the same.
struct TileTerms {
  __m512i of[kTerms];
};

/// The upper halves of one of `first` and one of `second` in turn.
EVALCAR_TILES inline __m512i in_turn(__m512i first, __m512i second) {
  return _mm512_mask_blend_epi16(0xaaaaaaaaU, _mm512_srli_epi32(first, 16), second);
}

/// Of one of `first` and one of `second` in turn. A number half way between two of bfloat16 becomes
/// the one further from 0.
EVALCAR_TILES inline TileTerms terms_in_turn(__m512 first, __m512 second) {
  const __m512i half = _mm512_set1_epi32(0x8000);
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000U));
  TileTerms terms;
#pragma GCC unroll 2
  for (int i = 0; i + 1 < kTerms; ++i) {
    const __m512i a = _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(first), half), upper);
    const __m512i b = _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(second), half), upper);
    first = _mm512_sub_ps(first, _mm512_castsi512_ps(a));
    second = _mm512_sub_ps(second, _mm512_castsi512_ps(b));
    terms.of[i] = in_turn(a, b);
  }
  // What is left has eight bits.
  terms.of[kTerms - 1] = in_turn(_mm512_castps_si512(first), _mm512_castps_si512(second));
  return terms;
}

/// The same with less work still: what one term cuts off is the next. Of numbers that are not below
/// 0: what products leave out is twice as much so.
EVALCAR_TILES inline TileTerms positive_terms_in_turn(__m512 first, __m512 second) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000U));
  TileTerms terms;
#pragma GCC unroll 2
  for (int i = 0; i + 1 < kTerms; ++i) {
    const __m512i a = _mm512_castps_si512(first);
    const __m512i b = _mm512_castps_si512(second);
    terms.of[i] = in_turn(a, b);
    first = _mm512_sub_ps(first, _mm512_castsi512_ps(_mm512_and_si512(a, upper)));
    second = _mm512_sub_ps(second, _mm512_castsi512_ps(_mm512_and_si512(b, upper)));
  }
  terms.of[kTerms - 1] = in_turn(_mm512_castps_si512(first), _mm512_castps_si512(second));
  return terms;
}

/// Lanes below `count`.
EVALCAR_TILES inline __mmask16 lanes_below(std::int64_t count) {
  return static_cast<__mmask16>((1U << std::clamp<std::int64_t>(count, 0, 16)) - 1U);
}

/// One term to `out`, the next ones kTermBytes further each.
EVALCAR_TILES inline void store_terms(const TileTerms& terms, char* out) {
#pragma GCC unroll 3
  for (int i = 0; i < kTerms; ++i) _mm512_store_si512(out + i * kTermBytes, terms.of[i]);
}

/// Of 32 numbers from `x` on, of which those from `count` on are 0: the first with the 17th, the
/// second with the 18th and so on.
EVALCAR_TILES inline TileTerms terms_at(const float* x, std::int64_t count) {
  if (count >= 32) return terms_in_turn(_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16));
  return terms_in_turn(
      _mm512_maskz_loadu_ps(lanes_below(count), x),
      count > 16 ? _mm512_maskz_loadu_ps(lanes_below(count - 16), x + 16) : _mm512_setzero_ps());
}

EVALCAR_TILES inline TileTerms no_terms() {
  TileTerms terms;
#pragma GCC unroll 3
  for (int i = 0; i < kTerms; ++i) terms.of[i] = _mm512_setzero_si512();
  return terms;
}

/// 32 numbers of bfloat16 in the order of terms_at().
EVALCAR_TILES inline __m512i halves_in_turn(__m512i numbers) {
  alignas(64) static constexpr auto kPlaces = [] {
    std::array<std::uint16_t, 32> places{};
    for (std::uint16_t i = 0; i < 32; ++i)
      places[i] = static_cast<std::uint16_t>(i / 2 + i % 2 * 16);
    return places;
  }();
  return _mm512_permutexvar_epi16(_mm512_load_si512(kPlaces.data()), numbers);
}

/// 2^x; 0 below 2^-149. What x is above the next whole number below goes into a polynomial for 2^x
/// on [0, 1]: the best of degree 6, each factor rounded before the next was chosen. It is off by
/// 2^-28.8 at most, with its own rounding by 1.03 units of 2^-24.
EVALCAR_TILES inline __m512 power_of_two(__m512 x) {
  constexpr int kDown = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
  const __m512 rest = _mm512_reduce_ps(x, kDown);  // of -inf it is 0
  __m512 y = _mm512_set1_ps(0.000215659718378447F);
  y = _mm512_fmadd_ps(y, rest, _mm512_set1_ps(0.0012482289457693696F));
  y = _mm512_fmadd_ps(y, rest, _mm512_set1_ps(0.0096737751737236977F));
  y = _mm512_fmadd_ps(y, rest, _mm512_set1_ps(0.055486183613538742F));
  y = _mm512_fmadd_ps(y, rest, _mm512_set1_ps(0.24022908508777618F));
  y = _mm512_fmadd_ps(y, rest, _mm512_set1_ps(0.69314706325531006F));
  y = _mm512_fmadd_ps(y, rest, _mm512_set1_ps(1));
  return _mm512_scalef_ps(y, x);  // by the whole number below x
}

/// Each lane the largest of a vector: of x[i] lane i.
EVALCAR_TILES inline __m512 largest_of_each(const __m512 (&x)[16]) {
  __m512 t[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {  // halves: of i and of i + 8
    t[i] = _mm512_max_ps(_mm512_shuffle_f32x4(x[i], x[i + 8], 0x44),
                         _mm512_shuffle_f32x4(x[i], x[i + 8], 0xee));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // quarters: of i, i + 8, i + 4, i + 12
    t[i] = _mm512_max_ps(_mm512_shuffle_f32x4(t[i], t[i + 4], 0x88),
                         _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd));
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i)
    t[i] = _mm512_max_ps(_mm512_unpacklo_ps(t[i], t[i + 2]), _mm512_unpackhi_ps(t[i], t[i + 2]));
  const __m512 all = _mm512_max_ps(_mm512_unpacklo_ps(t[0], t[1]), _mm512_unpackhi_ps(t[0], t[1]));
  return _mm512_shuffle_f32x4(all, all, 0xd8);
}

/// Rows become columns: 16 x 16 values of 32 bits.
EVALCAR_TILES inline void transpose(__m512i (&r)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i even = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    const __m512i odd = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    const __m512i even_below = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    const __m512i odd_below = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    t[i] = _mm512_shuffle_i32x4(even, even_below, 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(odd, odd_below, 0x88);
    t[i + 8] = _mm512_shuffle_i32x4(even, even_below, 0xdd);
    t[i + 12] = _mm512_shuffle_i32x4(odd, odd_below, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = t[i];
}

// A block of rows for one step is, for each term, two tiles: 16 rows of 32 numbers, and the
// next 16, in the order of terms_at(). A block of columns likewise; a tile of theirs holds in row i
// the numbers that are 2i and 2i + 1 in that order, of each of 16 columns. Sums: tiles 0 to 3, by
// rows first; rows: tiles 4 and 5; columns: 6 and 7.

#define EVALCAR_LOAD_ROWS(term)                   \
  _tile_loadd(4, rows + (term) * kTermBytes, 64); \
  _tile_loadd(5, rows + (term) * kTermBytes + kTermBytes / 2, 64)
#define EVALCAR_LOAD_COLUMNS(term)                   \
  _tile_loadd(6, columns + (term) * kTermBytes, 64); \
  _tile_loadd(7, columns + (term) * kTermBytes + kTermBytes / 2, 64)
#define EVALCAR_ADD_PRODUCTS \
  _tile_dpbf16ps(0, 4, 6);   \
  _tile_dpbf16ps(1, 4, 7);   \
  _tile_dpbf16ps(2, 5, 6);   \
  _tile_dpbf16ps(3, 5, 7);   \
  beside()

/// Nothing to do beside products.
struct NothingBeside {
  void operator()() const {}
};

/// How often multiply_blocks() calls `beside`.
template <std::int64_t kColumnTerms>
constexpr std::int64_t turns_beside(std::int64_t steps) {
  return steps * (kColumnTerms == 1 ? 3 : 6);
}

/// sums[m · stride + n] of a block of rows and a block of columns, over `steps`; columns of three
/// terms, or of one, which gives the bits of three of which two are 0. The small products of a step
/// go first; each change but one loads one side only. `beside()` is called behind each four
/// products, which take the unit 64 cycles: some 48 instructions on whole vectors have room there,
/// as the unit takes one of their two ports.
template <std::int64_t kColumnTerms, typename Beside>
EVALCAR_TILES EVALCAR_INLINE inline void multiply_blocks(const char* rows, const char* columns,
                                                         std::int64_t steps, float* sums,
                                                         std::int64_t stride, Beside& beside) {
  settle_memory(rows);
  settle_memory(columns);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (std::int64_t step = 0; step < steps; ++step) {
    if constexpr (kColumnTerms == 1) {
      EVALCAR_LOAD_COLUMNS(0);
      EVALCAR_LOAD_ROWS(1);
      EVALCAR_ADD_PRODUCTS;
      EVALCAR_LOAD_ROWS(2);
      EVALCAR_ADD_PRODUCTS;
    } else {
      EVALCAR_LOAD_ROWS(0);
      EVALCAR_LOAD_COLUMNS(2);
      EVALCAR_ADD_PRODUCTS;
      EVALCAR_LOAD_COLUMNS(1);
      EVALCAR_ADD_PRODUCTS;
      EVALCAR_LOAD_ROWS(1);
      EVALCAR_ADD_PRODUCTS;
      EVALCAR_LOAD_COLUMNS(0);
      EVALCAR_ADD_PRODUCTS;
      EVALCAR_LOAD_ROWS(2);
      EVALCAR_ADD_PRODUCTS;
    }
    EVALCAR_LOAD_ROWS(0);
    EVALCAR_ADD_PRODUCTS;
    rows += kTerms * kTermBytes;
    columns += kColumnTerms * kTermBytes;
  }
  const auto bytes = static_cast<std::size_t>(stride) * sizeof(float);
  _tile_stored(0, sums, bytes);
  _tile_stored(1, sums + 16, bytes);
  _tile_stored(2, sums + 16 * stride, bytes);
  _tile_stored(3, sums + 16 * stride + 16, bytes);
}

template <std::int64_t kColumnTerms>
EVALCAR_TILES inline void multiply_blocks(const char* rows, const char* columns, std::int64_t steps,
                                          float* sums, std::int64_t stride) {
  NothingBeside nothing;
  multiply_blocks<kColumnTerms>(rows, columns, steps, sums, stride, nothing);
}

#undef EVALCAR_LOAD_ROWS
#undef EVALCAR_LOAD_COLUMNS
#undef EVALCAR_ADD_PRODUCTS

/// A block of rows, all steps: row m, of `rows` rows that are there, starts at x + m · stride.
EVALCAR_TILES inline void pack_rows(const float* x, std::int64_t stride, std::int64_t rows,
                                    std::int64_t width, char* out) {
  for (std::int64_t m = 0; m < kTileBlock; ++m) {
    for (std::int64_t step = 0; step < tile_steps(width); ++step) {
      const std::int64_t from = step * kTileStep;
      const TileTerms terms = m < rows ? terms_at(x + m * stride + from, width - from) : no_terms();
      store_terms(terms, out + step * kTerms * kTermBytes + m * 64);
    }
  }
}

/// A block of columns, all steps, each of them contiguous: column n starts at w + n · stride.
EVALCAR_TILES inline void pack_columns(const float* w, std::int64_t stride, std::int64_t columns,
                                       std::int64_t width, char* out) {
  for (std::int64_t step = 0; step < tile_steps(width); ++step) {
    const std::int64_t from = step * kTileStep;
    for (std::int64_t half = 0; half < 2; ++half) {
      __m512i values[kTerms][16];
      for (int n = 0; n < 16; ++n) {
        const std::int64_t column = half * 16 + n;
        const TileTerms terms =
            column < columns ? terms_at(w + column * stride + from, width - from) : no_terms();
        for (int i = 0; i < kTerms; ++i) values[i][n] = terms.of[i];
      }
      for (int i = 0; i < kTerms; ++i) {
        transpose(values[i]);
        char* const to = out + (step * kTerms + i) * kTermBytes + half * kTermBytes / 2;
        for (int row = 0; row < 16; ++row) _mm512_store_si512(to + row * 64, values[i][row]);
      }
    }
  }
}

/// The same of bfloat16: the one term that there is.
EVALCAR_TILES inline void pack_columns(const std::uint16_t* w, std::int64_t stride,
                                       std::int64_t columns, std::int64_t width, char* out) {
  for (std::int64_t step = 0; step < tile_steps(width); ++step) {
    const std::int64_t from = step * kTileStep;
    const auto there =
        static_cast<__mmask32>((std::uint64_t{1} << std::min<std::int64_t>(32, width - from)) - 1U);
    for (std::int64_t half = 0; half < 2; ++half) {
      __m512i values[16];
      for (int n = 0; n < 16; ++n) {
        const std::int64_t column = half * 16 + n;
        values[n] =
            column < columns
                ? halves_in_turn(_mm512_maskz_loadu_epi16(there, w + column * stride + from))
                : _mm512_setzero_si512();
      }
      transpose(values);
      char* const to = out + step * kTermBytes + half * kTermBytes / 2;
      for (int row = 0; row < 16; ++row) _mm512_store_si512(to + row * 64, values[row]);
    }
  }
}

}  // namespace evalcar::kernels

#endif
