#include "store/checkpoint/crc32.h"

#include <array>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace evalcar::checkpoint {
namespace {

constexpr std::size_t kSlices = 16;
using Tables = std::array<std::array<std::uint32_t, 256>, kSlices>;

/// tables[k][b]: the CRC of byte b followed by k zero bytes.
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t value = b;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value & 1U) != 0 ? 0xedb88320U ^ (value >> 1U) : value >> 1U;
    }
    tables[0][b] = value;
  }
  for (std::size_t k = 1; k < kSlices; ++k) {
    for (std::size_t b = 0; b < 256; ++b) {
      tables[k][b] = tables[0][tables[k - 1][b] & 0xffU] ^ (tables[k - 1][b] >> 8U);
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

/// `crc` is inverted already. Any length.
std::uint32_t crc32_by_tables(const unsigned char* at, std::size_t left, std::uint32_t crc) {
  for (; left >= kSlices; at += kSlices, left -= kSlices) {
    std::uint32_t next = 0;
    for (std::size_t i = 0; i < kSlices; ++i) {
      const std::uint32_t mixed = i < 4 ? at[i] ^ (crc >> (8 * i) & 0xffU) : at[i];
      next ^= kTables[kSlices - 1 - i][mixed];
    }
    crc = next;
  }
  for (; left > 0; ++at, --left) crc = kTables[0][(crc ^ *at) & 0xffU] ^ (crc >> 8U);
  return crc;
}

#if defined(__x86_64__)
constexpr std::size_t kFoldBytes = 64;

/// Carry-less multiplication by powers of x modulo the polynomial: 64 bytes are folded onto the
/// next 64, the rest is reduced (Gopal et al., "Fast CRC Computation for Generic Polynomials Using
/// PCLMULQDQ", Intel 2009; constants of the reflected polynomial from its table). `crc` is inverted
/// already; `left` is a multiple of 16 and at least 64.
__attribute__((target("pclmul,sse4.1"))) std::uint32_t crc32_by_folding(const unsigned char* at,
                                                                        std::size_t left,
                                                                        std::uint32_t crc) {
  const auto load = [](const unsigned char* from) __attribute__((target("pclmul,sse4.1"))) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  };
  const auto fold = [](__m128i x, __m128i k, __m128i next)
                        __attribute__((target("pclmul,sse4.1"))) {
                          const __m128i low = _mm_clmulepi64_si128(x, k, 0x00);
                          const __m128i high = _mm_clmulepi64_si128(x, k, 0x11);
                          return _mm_xor_si128(_mm_xor_si128(low, high), next);
                        };
  const __m128i by_512 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
  const __m128i by_128 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);

  __m128i x0 = _mm_xor_si128(load(at), _mm_cvtsi32_si128(static_cast<int>(crc)));
  __m128i x1 = load(at + 16);
  __m128i x2 = load(at + 32);
  __m128i x3 = load(at + 48);
  at += kFoldBytes;
  left -= kFoldBytes;
  for (; left >= kFoldBytes; at += kFoldBytes, left -= kFoldBytes) {
    x0 = fold(x0, by_512, load(at));
    x1 = fold(x1, by_512, load(at + 16));
    x2 = fold(x2, by_512, load(at + 32));
    x3 = fold(x3, by_512, load(at + 48));
  }
  x0 = fold(fold(fold(x0, by_128, x1), by_128, x2), by_128, x3);
  for (; left >= 16; at += 16, left -= 16) x0 = fold(x0, by_128, load(at));

  // 128 bits to 64, then Barrett's reduction to 32.
  const __m128i low_words = _mm_setr_epi32(~0, 0, ~0, 0);
  x0 = _mm_xor_si128(_mm_srli_si128(x0, 8), _mm_clmulepi64_si128(x0, by_128, 0x10));
  const __m128i by_64 = _mm_set_epi64x(0, 0x0163cd6124);
  x0 = _mm_xor_si128(_mm_srli_si128(x0, 4),
                     _mm_clmulepi64_si128(_mm_and_si128(x0, low_words), by_64, 0x00));
  const __m128i polynomial = _mm_set_epi64x(0x01f7011641, 0x01db710641);
  __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(x0, low_words), polynomial, 0x10);
  quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_words), polynomial, 0x00);
  return static_cast<std::uint32_t>(_mm_extract_epi32(_mm_xor_si128(x0, quotient), 1));
}
#endif

// Polynomials modulo the CRC's, bit 31 the coefficient of x^0.
constexpr std::uint32_t kOne = 0x80000000U;

constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = kOne; bit != 0; bit >>= 1U) {
    if ((a & bit) != 0) product ^= b;
    b = (b & 1U) != 0 ? 0xedb88320U ^ (b >> 1U) : b >> 1U;
  }
  return product;
}

/// x^(2^k) for k < 32; the polynomial is primitive, so that x^(2^32) is x again.
constexpr std::array<std::uint32_t, 32> make_squares() {
  std::array<std::uint32_t, 32> squares{};
  squares[0] = kOne >> 1U;
  for (std::size_t k = 1; k < squares.size(); ++k) {
    squares[k] = multiply(squares[k - 1], squares[k - 1]);
  }
  return squares;
}

constexpr std::array<std::uint32_t, 32> kSquares = make_squares();

}  // namespace

std::uint32_t combine_crc32(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) {
  // What follows shifts the first text's remainder by its number of bits; the inversions at the
  // start and the end of either CRC cancel out.
  std::uint32_t shift = kOne;
  for (std::size_t k = 3; second_bytes != 0; second_bytes >>= 1U, ++k) {
    if ((second_bytes & 1U) != 0) shift = multiply(kSquares[k % kSquares.size()], shift);
  }
  return multiply(shift, first) ^ second;
}

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t crc) {
  crc = ~crc;
  const auto* at = reinterpret_cast<const unsigned char*>(bytes.data());
  std::size_t left = bytes.size();
#if defined(__x86_64__)
  if (left >= kFoldBytes && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) {
    const std::size_t folded = left & ~std::size_t{15};
    crc = crc32_by_folding(at, folded, crc);
    at += folded;
    left -= folded;
  }
#endif
  return ~crc32_by_tables(at, left, crc);
}

}  // namespace evalcar::checkpoint
