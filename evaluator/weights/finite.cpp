#include "evaluator/weights/finite.h"

#include <algorithm>
#include <cstring>

namespace evalcar::weights {
namespace {

constexpr std::size_t kBlock = 4096;  // elements; copied out, because the bytes need not be aligned

// An element is bad when its magnitude bits reach `limit`. Counting a whole block without leaving
// the loop lets the compiler vectorise it.
template <typename Bits>
std::optional<std::uint64_t> first_at_least(std::span<const std::byte> bytes, Bits magnitude,
                                            Bits limit) {
  const std::size_t count = bytes.size() / sizeof(Bits);
  Bits block[kBlock];
  for (std::size_t start = 0; start < count; start += kBlock) {
    const std::size_t size = std::min(kBlock, count - start);
    std::memcpy(block, bytes.data() + start * sizeof(Bits), size * sizeof(Bits));
    bool bad = false;
    for (std::size_t i = 0; i < size; ++i) bad |= static_cast<Bits>(block[i] & magnitude) >= limit;
    if (!bad) continue;
    for (std::size_t i = 0; i < size; ++i) {
      if (static_cast<Bits>(block[i] & magnitude) >= limit) return start + i;
    }
  }
  return std::nullopt;
}

}  // namespace

bool is_float_dtype(checkpoint::DType dtype) {
  using enum checkpoint::DType;
  return dtype == kFloat64 || dtype == kFloat32 || dtype == kFloat16 || dtype == kBFloat16;
}

std::optional<std::uint64_t> first_not_finite(std::span<const std::byte> bytes,
                                              checkpoint::DType dtype) {
  switch (dtype) {
    case checkpoint::DType::kFloat16:
      return first_at_least<std::uint16_t>(bytes, 0x7fff, 0x7c00);
    case checkpoint::DType::kBFloat16:
      return first_at_least<std::uint16_t>(bytes, 0x7fff, 0x7f80);
    case checkpoint::DType::kFloat32:
      return first_at_least<std::uint32_t>(bytes, 0x7fffffffu, 0x7f800000u);
    default:  // float64: 2^128 - 2^103, the least magnitude that rounds to an infinite float32
      return first_at_least<std::uint64_t>(bytes, 0x7fffffffffffffffull, 0x47effffff0000000ull);
  }
}

}  // namespace evalcar::weights
