// Everything goes by way of float32 in blocks that stay in the first cache: cast_kernels.h knows
// the 16-bit types, and float64 is one instruction from float32. Blocks have a fixed size wherever
// the compiler shall turn a loop into vector instructions.
#include "store/checkpoint/convert.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "store/checkpoint/cast_kernels.h"

namespace evalcar::checkpoint {
namespace {

constexpr std::size_t kBlock = 1024;  // elements
using Floats = std::array<float, kBlock>;
using Doubles = std::array<double, kBlock>;

/// `count` elements of 16 or 32 bits to float32.
void widen(DType from, const std::byte* in, std::byte* out, std::size_t count) {
  switch (from) {
    case DType::kFloat16:
      return best_casts().float16_to_float32(in, out, count);
    case DType::kBFloat16:
      return best_casts().bfloat16_to_float32(in, out, count);
    default:
      assert(from == DType::kFloat32);
      std::memcpy(out, in, count * sizeof(float));
  }
}

/// `count` float32 to 16 or 32 bits.
void narrow(const std::byte* in, DType to, std::byte* out, std::size_t count) {
  switch (to) {
    case DType::kFloat16:
      return best_casts().float32_to_float16(in, out, count);
    case DType::kBFloat16:
      return best_casts().float32_to_bfloat16(in, out, count);
    default:
      assert(to == DType::kFloat32);
      std::memcpy(out, in, count * sizeof(float));
  }
}

/// A block of doubles, of which the first `count` matter, to any type.
void narrow_doubles(const Doubles& values, DType to, std::byte* out, std::size_t count) {
  if (to == DType::kFloat64) {
    std::memcpy(out, values.data(), count * sizeof(double));
    return;
  }
  Floats floats;
  for (std::size_t i = 0; i < kBlock; ++i) floats[i] = static_cast<float>(values[i]);
  narrow(std::as_bytes(std::span(floats)).data(), to, out, count);
}

/// The float32 on the way to 16 bits, rounded to odd: what lies between two floats becomes the one
/// with an odd last bit, so that the rounding that follows sees on which side of a tie it was.
/// (Boldo, Melquiond: When double rounding is odd. 24 bits are enough for 11 and for 8.)
float round_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  const double magnitude = std::fabs(value);
  const double rounded = std::fabs(static_cast<double>(nearest));
  const auto bits = std::bit_cast<std::uint32_t>(nearest);
  const std::uint32_t step = static_cast<std::uint32_t>(rounded < magnitude) -
                             static_cast<std::uint32_t>(rounded > magnitude);  // a NaN: 0
  return std::bit_cast<float>(bits + ((bits & 1U) != 0 ? 0U : step));
}

/// As narrow_doubles, but rounded once.
void narrow_doubles_once(const Doubles& values, DType to, std::byte* out, std::size_t count) {
  if (to == DType::kFloat64 || to == DType::kFloat32) return narrow_doubles(values, to, out, count);
  Floats floats;
  for (std::size_t i = 0; i < kBlock; ++i) floats[i] = round_to_odd(values[i]);
  narrow(std::as_bytes(std::span(floats)).data(), to, out, count);
}

/// The type of the numbers that an element consists of.
DType number_type(DType dtype) {
  if (dtype == DType::kComplex32) return DType::kFloat16;
  if (dtype == DType::kComplex64) return DType::kFloat32;
  return dtype == DType::kComplex128 ? DType::kFloat64 : dtype;
}

/// `count` elements of any type to a block of doubles; the rest of it becomes zero.
void widen_to_doubles(DType from, const std::byte* in, Doubles& out, std::size_t count) {
  if (from == DType::kFloat64) {
    std::memcpy(out.data(), in, count * sizeof(double));
    std::fill(out.begin() + static_cast<std::ptrdiff_t>(count), out.end(), 0.0);
    return;
  }
  Floats floats{};
  widen(from, in, std::as_writable_bytes(std::span(floats)).data(), count);
  for (std::size_t i = 0; i < kBlock; ++i) out[i] = static_cast<double>(floats[i]);
}

/// Calls f(first element, number of elements) for each block.
template <typename F>
void for_each_block(std::size_t elements, F&& f) {
  for (std::size_t at = 0; at < elements; at += kBlock) f(at, std::min(kBlock, elements - at));
}

}  // namespace

bool is_convertible(DType dtype) {
  return dtype == DType::kFloat64 || dtype == DType::kFloat32 || dtype == DType::kFloat16 ||
         dtype == DType::kBFloat16;
}

std::size_t numbers_per_element(DType dtype) { return number_type(dtype) == dtype ? 1 : 2; }

bool is_averaged(DType dtype) { return is_convertible(number_type(dtype)); }

bool is_scaled(DType dtype) {
  switch (dtype) {
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E5M2:
    case DType::kFloat8E4M3FNUZ:
    case DType::kFloat8E5M2FNUZ:
    case DType::kFloat8E8M0FNU:
    case DType::kFloat4E2M1FNX2:
      return true;
    default:
      return false;
  }
}

void convert(DType from, std::span<const std::byte> in, DType to, std::span<std::byte> out) {
  assert(is_convertible(from) && is_convertible(to));
  const std::size_t in_bytes = dtype_size(from);
  const std::size_t out_bytes = dtype_size(to);
  const std::size_t elements = in.size() / in_bytes;
  if (from == to) {
    if (!in.empty()) std::memcpy(out.data(), in.data(), in.size());
  } else if (from == DType::kFloat64 || to == DType::kFloat64) {
    Doubles doubles;
    for_each_block(elements, [&](std::size_t at, std::size_t count) {
      widen_to_doubles(from, in.data() + at * in_bytes, doubles, count);
      narrow_doubles(doubles, to, out.data() + at * out_bytes, count);
    });
  } else if (from == DType::kFloat32) {
    narrow(in.data(), to, out.data(), elements);
  } else if (to == DType::kFloat32) {
    widen(from, in.data(), out.data(), elements);
  } else {
    Floats floats;
    std::byte* const between = std::as_writable_bytes(std::span(floats)).data();
    for_each_block(elements, [&](std::size_t at, std::size_t count) {
      widen(from, in.data() + at * in_bytes, between, count);
      narrow(between, to, out.data() + at * out_bytes, count);
    });
  }
}

void accumulate(DType from, std::span<const std::byte> in, double weight, std::span<double> sum) {
  assert(is_averaged(from));
  from = number_type(from);
  Doubles values;
  for_each_block(sum.size(), [&](std::size_t at, std::size_t count) {
    widen_to_doubles(from, in.data() + at * dtype_size(from), values, count);
    for (std::size_t i = 0; i < kBlock; ++i) values[i] *= weight;
    for (std::size_t i = 0; i < count; ++i) sum[at + i] += values[i];
  });
}

void write_mean(std::span<const double> sum, double divisor, DType to, std::span<std::byte> out) {
  assert(is_averaged(to));
  to = number_type(to);
  Doubles values{};
  for_each_block(sum.size(), [&](std::size_t at, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) values[i] = sum[at + i] / divisor;
    narrow_doubles_once(values, to, out.data() + at * dtype_size(to), count);
  });
}

}  // namespace evalcar::checkpoint
