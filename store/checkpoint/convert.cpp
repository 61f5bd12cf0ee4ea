#include "store/checkpoint/convert.h"

#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace evalcar::checkpoint {
namespace {

// One struct per type: how an element is stored, and its value as a double (which holds all of them
// exactly).
struct Float64 {
  using Stored = double;
  static double load(double stored) { return stored; }
  static double store(double value) { return value; }
};

struct Float32 {
  using Stored = float;
  static double load(float stored) { return stored; }
  static float store(double value) { return static_cast<float>(value); }
};

/// A float rounded, ties to even, to 1 sign bit, `kExponentBits` and `kMantissaBits`. torch goes
/// from float64 by way of float32 too, so that the results are the same.
template <int kExponentBits, int kMantissaBits>
std::uint16_t round_to_16_bits(float narrowed) {
  const double value = narrowed;
  constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  constexpr std::uint64_t kInfinity = ((std::uint64_t{1} << kExponentBits) - 1) << kMantissaBits;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 63U << 15U);
  if (std::isnan(value)) {
    return static_cast<std::uint16_t>(sign | kInfinity | std::uint64_t{1} << (kMantissaBits - 1));
  }
  if (std::isinf(value)) return static_cast<std::uint16_t>(sign | kInfinity);
  const int exponent = static_cast<int>(bits >> 52U & 0x7ffU) - 1023;
  if (exponent == -1023) return sign;  // zero, or a double far below the smallest half
  const std::uint64_t mantissa = (bits & ((std::uint64_t{1} << 52U) - 1)) | std::uint64_t{1} << 52U;
  // Bits of the mantissa to drop: more where the result is subnormal.
  int drop = 52 - kMantissaBits;
  int field = exponent + kBias;
  if (field <= 0) {
    drop += 1 - field;
    field = 0;
  }
  if (drop > 54) return sign;
  const std::uint64_t half = std::uint64_t{1} << (drop - 1);
  const std::uint64_t rest = mantissa & (half * 2 - 1);
  std::uint64_t kept = mantissa >> drop;
  if (rest > half || (rest == half && (kept & 1U) != 0)) ++kept;
  // The hidden bit adds one to the exponent field; a carry out of the mantissa does the same.
  const std::uint64_t result =
      (field > 0 ? static_cast<std::uint64_t>(field - 1) << kMantissaBits : 0) + kept;
  return static_cast<std::uint16_t>(sign | (result < kInfinity ? result : kInfinity));
}

struct BFloat16 {
  using Stored = std::uint16_t;
  static double load(std::uint16_t stored) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(stored) << 16U);
  }
  static std::uint16_t store(double value) {
    return round_to_16_bits<8, 7>(static_cast<float>(value));
  }
};

struct Float16 {
  using Stored = std::uint16_t;
  static double load(std::uint16_t stored) {
    const int exponent = stored >> 10U & 0x1f;
    const int mantissa = stored & 0x3ff;
    double value = 0;
    if (exponent == 0) {
      value = std::ldexp(mantissa, -24);
    } else if (exponent < 31) {
      value = std::ldexp(mantissa + 1024, exponent - 25);
    } else {
      value = mantissa == 0 ? HUGE_VAL : std::nan("");
    }
    return (stored >> 15U) != 0 ? -value : value;
  }
  static std::uint16_t store(double value) {
    return round_to_16_bits<5, 10>(static_cast<float>(value));
  }
};

template <typename Type>
typename Type::Stored load_stored(const std::byte* bytes) {
  typename Type::Stored stored;
  std::memcpy(&stored, bytes, sizeof(stored));
  return stored;
}

/// Calls f with the type's struct.
template <typename F>
void with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat64:
      return f(Float64{});
    case DType::kFloat32:
      return f(Float32{});
    case DType::kFloat16:
      return f(Float16{});
    case DType::kBFloat16:
      return f(BFloat16{});
    default:
      assert(false && "not a convertible dtype");
  }
}

[[gnu::always_inline]] inline std::uint16_t rounded_upper_half(std::uint32_t bits) {
  const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
  const std::uint32_t rounded = (bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U;
  return static_cast<std::uint16_t>(nan ? 0x7fc0U : rounded);
}

constexpr std::size_t kBlock = 64;

/// One block between local arrays of a fixed size, which the compiler turns into vector
/// instructions. Inlined, so that it takes on its caller's instruction set.
[[gnu::always_inline]] inline void round_block(const std::byte* in, std::byte* out) {
  std::array<std::uint32_t, kBlock> bits;
  std::array<std::uint16_t, kBlock> stored;
  std::memcpy(bits.data(), in, sizeof(bits));
  for (std::size_t i = 0; i < kBlock; ++i) stored[i] = rounded_upper_half(bits[i]);
  std::memcpy(out, stored.data(), sizeof(stored));
}

void round_blocks(const std::byte* in, std::byte* out, std::size_t blocks) {
  for (std::size_t i = 0; i < blocks; ++i) round_block(in + i * kBlock * 4, out + i * kBlock * 2);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] void round_blocks_avx2(const std::byte* in, std::byte* out,
                                               std::size_t blocks) {
  for (std::size_t i = 0; i < blocks; ++i) round_block(in + i * kBlock * 4, out + i * kBlock * 2);
}
#endif

/// The case of almost every merge, without the way over double: the upper half of the float,
/// rounded.
void float32_to_bfloat16(std::span<const std::byte> in, std::byte* out) {
  const std::size_t count = in.size() / 4;
  auto* run = round_blocks;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) run = round_blocks_avx2;
#endif
  run(in.data(), out, count / kBlock);
  for (std::size_t i = count / kBlock * kBlock; i < count; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, in.data() + 4 * i, 4);
    const std::uint16_t stored = rounded_upper_half(bits);
    std::memcpy(out + 2 * i, &stored, 2);
  }
}

}  // namespace

bool is_convertible(DType dtype) {
  return dtype == DType::kFloat64 || dtype == DType::kFloat32 || dtype == DType::kFloat16 ||
         dtype == DType::kBFloat16;
}

void convert(DType from, std::span<const std::byte> in, DType to, std::span<std::byte> out) {
  if (from == to) {
    if (!in.empty()) std::memcpy(out.data(), in.data(), in.size());
    return;
  }
  if (from == DType::kFloat32 && to == DType::kBFloat16) {
    float32_to_bfloat16(in, out.data());
    return;
  }
  with_type(from, [&]<typename From>(From) {
    with_type(to, [&]<typename To>(To) {
      constexpr std::size_t kIn = sizeof(typename From::Stored);
      constexpr std::size_t kOut = sizeof(typename To::Stored);
      for (std::size_t i = 0; i < in.size() / kIn; ++i) {
        const typename To::Stored stored =
            To::store(From::load(load_stored<From>(in.data() + i * kIn)));
        std::memcpy(out.data() + i * kOut, &stored, kOut);
      }
    });
  });
}

void accumulate(DType from, std::span<const std::byte> in, std::span<double> sum) {
  with_type(from, [&]<typename From>(From) {
    constexpr std::size_t kIn = sizeof(typename From::Stored);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] += From::load(load_stored<From>(in.data() + i * kIn));
    }
  });
}

void write_mean(std::span<const double> sum, double count, DType to, std::span<std::byte> out) {
  with_type(to, [&]<typename To>(To) {
    constexpr std::size_t kOut = sizeof(typename To::Stored);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      const typename To::Stored stored = To::store(sum[i] / count);
      std::memcpy(out.data() + i * kOut, &stored, kOut);
    }
  });
}

}  // namespace evalcar::checkpoint
