// Decoding pictures exactly as Pillow's Image.convert("RGB") does where ImageFile's
// LOAD_TRUNCATED_IMAGES is set, as lmms-eval sets it: same bytes for JPEG, PNG and WebP.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "store/base/result.h"

namespace evalcar::vision {

/// rgb: (height, width, 3) uint8, row-major.
struct Image {
  int width = 0;
  int height = 0;
  std::vector<std::uint8_t> rgb;
  /// Its file is cut off or broken: what could not be read is as Pillow leaves it.
  bool is_incomplete = false;
};

struct DecodeLimits {
  std::int64_t max_pixels =
      178'956'970;  ///< Pillow's own limit before it raises a decompression-bomb error is twice its
                    ///< warning limit of 89,478,485
};

/// Decodes JPEG, PNG or WebP by content (never by a file name). `name` is for messages. A file that
/// is cut off or broken within its pixels is_incomplete; one that is an error in Pillow all the
/// same is kCorruption (before the pixels, a cut WebP); another format is kUnsupported by name.
/// EXIF orientation is applied as Hugging Face datasets' Image feature does. Thread-safe.
Result<Image> decode_image(std::span<const std::byte> bytes, std::string_view name,
                           const DecodeLimits& limits = {});

/// Width and height that decode_image() will give (EXIF orientation applied), from the header
/// alone.
struct ImageSize {
  int width = 0;
  int height = 0;
  bool operator==(const ImageSize&) const = default;
};
Result<ImageSize> read_image_size(std::span<const std::byte> bytes, std::string_view name,
                                  const DecodeLimits& limits = {});

/// Whether a JPEG or PNG that read_image_size() takes ends before its end marker, so that pixels
/// may be missing; without decoding.
bool is_cut_off(std::span<const std::byte> bytes);

}  // namespace evalcar::vision
