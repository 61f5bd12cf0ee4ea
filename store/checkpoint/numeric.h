// Arithmetic on numbers that come from a file: every product and sum is checked.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace evalcar::checkpoint {

inline std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

inline std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

/// Product of the sizes (1 for a scalar); absent on a negative size or when it passes int64. A zero
/// dimension does not hide an overflow of the others.
inline std::optional<std::uint64_t> checked_elements(std::span<const std::int64_t> shape) {
  std::uint64_t nonzero_product = 1;
  bool empty = false;
  for (const std::int64_t size : shape) {
    if (size < 0) return std::nullopt;
    if (size == 0) {
      empty = true;
      continue;
    }
    const auto next = checked_mul(nonzero_product, static_cast<std::uint64_t>(size));
    if (!next || *next > static_cast<std::uint64_t>(INT64_MAX)) return std::nullopt;
    nonzero_product = *next;
  }
  return empty ? 0 : nonzero_product;
}

/// Row-major strides in elements.
template <typename Shape>
Shape contiguous_strides(const Shape& shape) {
  Shape strides(shape.size());
  std::int64_t step = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    strides[d] = step;
    step *= shape[d] > 0 ? shape[d] : 1;
  }
  return strides;
}

/// "[2, 3]".
inline std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (d > 0) text += ", ";
    text += std::to_string(shape[d]);
  }
  return text + "]";
}

/// A name out of a file, fit for one log line: at most 120 bytes, everything but printable ASCII
/// escaped, in double quotes.
std::string quote_name(std::string_view name);

/// More dimensions than any real tensor has; torch's own limit is 64.
inline constexpr std::size_t kMaxDimensions = 64;

}  // namespace evalcar::checkpoint
