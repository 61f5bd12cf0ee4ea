// What a picture file says about its orientation, and the decoders behind decode_image(). Internal
// to this room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "evaluator/vision/image.h"
#include "store/base/result.h"

namespace evalcar::vision {

using Bytes = std::span<const std::byte>;

inline std::uint8_t byte_at(Bytes bytes, std::size_t i) {
  return std::to_integer<std::uint8_t>(bytes[i]);
}
inline std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline std::uint32_t big_endian_16(Bytes bytes, std::size_t i) {
  return (std::uint32_t{byte_at(bytes, i)} << 8) | byte_at(bytes, i + 1);
}
inline std::uint32_t big_endian_32(Bytes bytes, std::size_t i) {
  return (big_endian_16(bytes, i) << 16) | big_endian_16(bytes, i + 2);
}

/// Before an EXIF block, in a JPEG file always, elsewhere now and then.
inline constexpr std::string_view kExifPrefix{"Exif\0\0", 6};

/// The blocks in which Pillow looks for an orientation, as the file holds them.
struct Metadata {
  std::optional<std::string> exif;      ///< Image.info["exif"]
  std::optional<std::string> hex_exif;  ///< "Raw profile type exif" (PNG text), used without exif
  std::string xmp;                      ///< the XMP packet; empty if there is none
  bool broken_exif_is_silent = false;   ///< Pillow has met and swallowed the error while opening
};

/// The EXIF orientation, 1 … 8, that Hugging Face datasets' Image feature applies: from EXIF, else
/// from XMP, 1 if neither has one. An unknown value is 1. kCorruption for an EXIF block that is not
/// one, where Pillow raises.
Result<int> find_orientation(const Metadata& metadata, std::string_view name);

/// The picture turned as ImageOps.exif_transpose does.
Image apply_orientation(Image image, int orientation);
inline bool swaps_sides(int orientation) { return orientation >= 5; }

/// kUnsupported if width * height is over the limit or a side over 2^31 - 1; kCorruption if a side
/// is 0.
Status check_size(std::uint64_t width, std::uint64_t height, std::string_view name,
                  const DecodeLimits& limits);

/// A decoder's result before orientation.
struct Decoded {
  ImageSize size;
  bool is_cut_off = false;  ///< there is no end marker
  Image image;              ///< empty if only the size was asked for
  Metadata metadata;
};

enum class Want { kSize, kPixels };

Result<Decoded> decode_jpeg(Bytes bytes, std::string_view name, const DecodeLimits& limits,
                            Want want);
Result<Decoded> decode_png(Bytes bytes, std::string_view name, const DecodeLimits& limits,
                           Want want);
Result<Decoded> decode_webp(Bytes bytes, std::string_view name, const DecodeLimits& limits,
                            Want want);

/// "<name>: <format>: <what>" as kCorruption.
Error damaged(std::string_view name, std::string_view format, std::string_view what);

}  // namespace evalcar::vision
