// The passes of resample.h with AVX2, chosen at run time. The products are formed by madd, which
// multiplies int16 pairs and adds each pair to an int32: two taps at once. ATen's weights fit in
// int16. Pillow's 22-bit ones are split into w = high * 2^11 + low (low unsigned); both halves fit,
// and sum(w * p) = sum(high * p) * 2^11 + sum(low * p) holds exactly in int32, since the whole sum
// fits.
#if defined(__x86_64__)

#include <immintrin.h>

#include <array>
#include <cstring>
#include <vector>

#include "evaluator/vision/resample_passes.h"

#define EVALCAR_AVX2 __attribute__((target("avx2")))

namespace evalcar::vision {
namespace {

constexpr int kLowBits = kLowWeightBits;
constexpr int kRowsAtOnce = 4;
constexpr std::int64_t kLoadBytes = 16;

// Four int16 weights w0 … w3 as (w0 w1) in every pair of the low lane and (w2 w3) in the high lane.
EVALCAR_AVX2 __m256i spread_four(const std::int16_t* weights) {
  const __m256i pairs = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
  const __m256i loaded =
      _mm256_castsi128_si256(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(weights)));
  return _mm256_permutevar8x32_epi32(loaded, pairs);
}

EVALCAR_AVX2 __m128i load_sixteen(const std::uint8_t* bytes) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
}

// Four RGB pixels (12 of 16 loaded bytes) as int16: r0 r1 g0 g1 b0 b1 0 0 | r2 r3 g2 g3 b2 b3 0 0.
EVALCAR_AVX2 __m256i four_pixels(const std::uint8_t* pixels) {
  const __m256i order =
      _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1, 6, -1, 9, -1, 7,
                       -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load_sixteen(pixels)), order);
}

// The low and high lanes of two rows' sums added up, the halves joined: (r g b 0 of a | of b).
template <bool kSplit>
EVALCAR_AVX2 __m256i row_sums(__m256i low_a, __m256i low_b, __m256i high_a, __m256i high_b) {
  const __m256i low = _mm256_add_epi32(_mm256_permute2x128_si256(low_a, low_b, 0x20),
                                       _mm256_permute2x128_si256(low_a, low_b, 0x31));
  if constexpr (!kSplit) return low;
  const __m256i high = _mm256_add_epi32(_mm256_permute2x128_si256(high_a, high_b, 0x20),
                                        _mm256_permute2x128_si256(high_a, high_b, 0x31));
  return _mm256_add_epi32(low, _mm256_slli_epi32(high, kLowBits));
}

// kRowsAtOnce rows, so that each weight is spread once for all of them.
template <bool kSplit>
EVALCAR_AVX2 void horizontal_rows(const ResampleAxis& axis,
                                  const std::array<const std::uint8_t*, kRowsAtOnce>& in,
                                  const std::array<std::uint8_t*, kRowsAtOnce>& out) {
  const std::size_t out_width = axis.first.size();
  const __m256i half = _mm256_set1_epi32(1 << (axis.bits - 1));
  const __m128i bits = _mm_cvtsi32_si128(axis.bits);
  for (std::size_t x = 0; x < out_width; ++x) {
    __m256i low[kRowsAtOnce];
    __m256i high[kRowsAtOnce];
    for (int r = 0; r < kRowsAtOnce; ++r) low[r] = high[r] = _mm256_setzero_si256();
    const std::int64_t offset = std::int64_t{axis.first[x]} * 3;
    const std::size_t row = x * static_cast<std::size_t>(axis.taps);
    const std::int16_t* weights_low = axis.low.data() + row;
    const std::int16_t* weights_high = kSplit ? axis.high.data() + row : nullptr;
    for (int j = 0; j < axis.count[x]; j += 4) {
      const __m256i w_low = spread_four(weights_low + j);
      __m256i w_high = _mm256_setzero_si256();
      if constexpr (kSplit) w_high = spread_four(weights_high + j);
      for (std::size_t r = 0; r < kRowsAtOnce; ++r) {
        const __m256i pixels = four_pixels(in[r] + offset + std::int64_t{j} * 3);
        low[r] = _mm256_add_epi32(low[r], _mm256_madd_epi16(pixels, w_low));
        if constexpr (kSplit)
          high[r] = _mm256_add_epi32(high[r], _mm256_madd_epi16(pixels, w_high));
      }
    }
    const __m256i first = row_sums<kSplit>(low[0], low[1], high[0], high[1]);
    const __m256i second = row_sums<kSplit>(low[2], low[3], high[2], high[3]);
    const __m256i words =
        _mm256_packs_epi32(_mm256_sra_epi32(_mm256_add_epi32(first, half), bits),
                           _mm256_sra_epi32(_mm256_add_epi32(second, half), bits));
    const __m256i bytes = _mm256_packus_epi16(words, words);  // rows 0 2 … | 1 3 …
    const auto even = static_cast<std::uint64_t>(_mm256_extract_epi64(bytes, 0));
    const auto odd = static_cast<std::uint64_t>(_mm256_extract_epi64(bytes, 2));
    const std::uint32_t rows[kRowsAtOnce] = {
        static_cast<std::uint32_t>(even), static_cast<std::uint32_t>(odd),
        static_cast<std::uint32_t>(even >> 32), static_cast<std::uint32_t>(odd >> 32)};
    // Four bytes are quicker to write than three; the next pixel overwrites the fourth.
    const bool last = x + 1 == out_width;
    for (std::size_t r = 0; r < kRowsAtOnce; ++r) {
      if (!last)
        std::memcpy(out[r] + x * 3, &rows[r], 4);
      else
        std::memcpy(out[r] + x * 3, &rows[r], 3);
    }
  }
}

EVALCAR_AVX2 __m256i spread_pair(const std::int16_t* weights) {
  std::int32_t both;
  std::memcpy(&both, weights, sizeof both);
  return _mm256_set1_epi32(both);
}

// 16 columns of one output row.
template <bool kSplit>
EVALCAR_AVX2 __m128i sixteen_columns(const std::uint8_t* in, std::int64_t stride, int count,
                                     const std::int16_t* w_low, const std::int16_t* w_high,
                                     __m256i half, __m128i bits) {
  __m256i low[2] = {half, half};
  __m256i high[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  for (int j = 0; j < count; j += 2, in += 2 * stride) {
    const __m128i a = load_sixteen(in);
    const __m128i b = j + 1 < count ? load_sixteen(in + stride) : _mm_setzero_si128();
    const __m256i pairs[2] = {_mm256_cvtepu8_epi16(_mm_unpacklo_epi8(a, b)),
                              _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(a, b))};
    const __m256i weight_low = spread_pair(w_low + j);
    for (int i = 0; i < 2; ++i)
      low[i] = _mm256_add_epi32(low[i], _mm256_madd_epi16(pairs[i], weight_low));
    if constexpr (kSplit) {
      const __m256i weight_high = spread_pair(w_high + j);
      for (int i = 0; i < 2; ++i)
        high[i] = _mm256_add_epi32(high[i], _mm256_madd_epi16(pairs[i], weight_high));
    }
  }
  for (int i = 0; i < 2; ++i) {
    if constexpr (kSplit) low[i] = _mm256_add_epi32(low[i], _mm256_slli_epi32(high[i], kLowBits));
    low[i] = _mm256_sra_epi32(low[i], bits);
  }
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low[0], low[1]), 0xD8);
  return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

template <bool kSplit>
EVALCAR_AVX2 void vertical_row(const std::uint8_t* in, std::int64_t stride, int count,
                               const std::int16_t* w_low, const std::int16_t* w_high, int bits,
                               std::uint8_t* out) {
  const __m256i half = _mm256_set1_epi32(1 << (bits - 1));
  const __m128i shift = _mm_cvtsi32_si128(bits);
  std::int64_t x = 0;
  for (; x + kLoadBytes <= stride; x += kLoadBytes) {
    _mm_storeu_si128(static_cast<__m128i*>(static_cast<void*>(out + x)),
                     sixteen_columns<kSplit>(in + x, stride, count, w_low, w_high, half, shift));
  }
  for (; x < stride; ++x) {
    std::int32_t sum = 1 << (bits - 1);
    for (int j = 0; j < count; ++j) {
      const std::int32_t weight = kSplit ? w_high[j] * (1 << kLowBits) + w_low[j] : w_low[j];
      sum += weight * in[j * stride + x];
    }
    const std::int32_t value = sum >> bits;
    out[x] = static_cast<std::uint8_t>(value < 0 ? 0 : (value > 255 ? 255 : value));
  }
}

}  // namespace

bool cpu_has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}

void horizontal_pass_avx2(const ResampleAxis& axis, const PassInput& input, std::uint8_t* out) {
  const std::int64_t in_stride = input.in_width * 3;
  const std::int64_t out_stride = static_cast<std::int64_t>(axis.first.size()) * 3;
  // Loads of 16 bytes reach over a row's end by at most 13 bytes (their weights are zero). Rows
  // near the end of the input are read from a padded copy.
  const std::int64_t reach = in_stride + 16;
  std::vector<std::uint8_t> padded(static_cast<std::size_t>(kRowsAtOnce * reach));
  std::vector<std::uint8_t> spare(static_cast<std::size_t>(out_stride));
  for (std::int64_t row = 0; row < input.rows; row += kRowsAtOnce) {
    std::array<const std::uint8_t*, kRowsAtOnce> sources{};
    std::array<std::uint8_t*, kRowsAtOnce> targets{};
    for (std::int64_t r = 0; r < kRowsAtOnce; ++r) {
      const auto slot = static_cast<std::size_t>(r);
      if (row + r >= input.rows) {
        sources[slot] = sources[0];
        targets[slot] = spare.data();
        continue;
      }
      const std::int64_t start = (row + r) * in_stride;
      sources[slot] = input.in + start;
      targets[slot] = out + (row + r) * out_stride;
      if (start + reach > input.rows * in_stride) {
        std::uint8_t* copy = padded.data() + r * reach;
        std::memcpy(copy, sources[slot], static_cast<std::size_t>(in_stride));
        sources[slot] = copy;
      }
    }
    if (axis.high.empty())
      horizontal_rows<false>(axis, sources, targets);
    else
      horizontal_rows<true>(axis, sources, targets);
  }
}

void vertical_pass_avx2(const ResampleAxis& axis, const PassInput& input, std::size_t begin,
                        std::size_t end, std::uint8_t* out) {
  const std::int64_t stride = input.in_width * 3;
  for (std::size_t y = begin; y < end; ++y, out += stride) {
    const std::uint8_t* in = input.in + (axis.first[y] - input.first_row) * stride;
    const std::size_t row = y * static_cast<std::size_t>(axis.taps);
    const std::int16_t* low = axis.low.data() + row;
    if (axis.high.empty())
      vertical_row<false>(in, stride, axis.count[y], low, nullptr, axis.bits, out);
    else
      vertical_row<true>(in, stride, axis.count[y], low, axis.high.data() + row, axis.bits, out);
  }
}

}  // namespace evalcar::vision

#endif  // __x86_64__
