// The tables behind unicode.h, generated: see make_unicode_ranges.py.
#pragma once

#include <cstddef>
#include <cstdint>

namespace evalcar::text {

/// From `first` up to the next range's first, code points have this general category (an index into
/// kCategoryNames of unicode.cpp).
struct CategoryRange {
  std::uint32_t first;
  std::uint8_t category;
};
extern const CategoryRange kCategoryRanges[];
extern const std::size_t kCategoryRangeCount;

/// Code points first … last, both included, that normalising leaves where they are.
struct InertRange {
  std::uint32_t first;
  std::uint32_t last;
};
extern const InertRange kInertRanges[];
extern const std::size_t kInertRangeCount;

}  // namespace evalcar::text
