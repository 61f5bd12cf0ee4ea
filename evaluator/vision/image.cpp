#include "evaluator/vision/image.h"

#include <new>
#include <string>
#include <utility>

#include "evaluator/vision/metadata.h"

namespace evalcar::vision {
namespace {

constexpr int kMaxSide = 0x7fffffff;

struct KnownFormat {
  std::string_view name;
  std::string_view magic;
};

// Formats that Pillow would open and we do not, so that the message can name them.
constexpr KnownFormat kOtherFormats[] = {
    {"GIF", "GIF8"}, {"BMP", "BM"},   {"TIFF", "II*"},
    {"TIFF", "MM"},  {"PDF", "%PDF"}, {"JPEG 2000", "\xff\x4f\xff\x51"},
    {"PNM", "P6"},   {"PNM", "P5"},   {"photoshop", "8BPS"},
};

bool is_jpeg(std::string_view text) { return text.starts_with("\xff\xd8\xff"); }
bool is_png(std::string_view text) { return text.starts_with("\x89PNG\r\n\x1a\n"); }
bool is_webp(std::string_view text) {
  return text.size() >= 16 && text.starts_with("RIFF") && text.substr(8, 4) == "WEBP";
}

Error unknown_format(std::string_view text, std::string_view name) {
  std::string seen = "the first bytes are not those of a picture format";
  for (const KnownFormat& format : kOtherFormats) {
    if (text.starts_with(format.magic)) seen = "it looks like " + std::string(format.name);
  }
  if (text.substr(0, 12).ends_with("ftypavif")) seen = "it looks like AVIF";
  if (text.empty()) seen = "it is empty";
  return make_error(ErrorCode::kUnsupported,
                    std::string(name) + ": " + seen + "; expected JPEG, PNG or WebP");
}

Result<Decoded> decode_any(Bytes bytes, std::string_view name, const DecodeLimits& limits,
                           Want want) {
  const std::string_view text = text_of(bytes);
  try {
    if (is_jpeg(text)) return decode_jpeg(bytes, name, limits, want);
    if (is_png(text)) return decode_png(bytes, name, limits, want);
    if (is_webp(text)) return decode_webp(bytes, name, limits, want);
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::kUnavailable,
                      std::string(name) + ": out of memory while decoding the picture");
  }
  return unknown_format(text, name);
}

}  // namespace

Error damaged(std::string_view name, std::string_view format, std::string_view what) {
  return make_error(ErrorCode::kCorruption,
                    std::string(name) + ": " + std::string(format) + ": " + std::string(what));
}

Status check_size(std::uint64_t width, std::uint64_t height, std::string_view name,
                  const DecodeLimits& limits) {
  const std::string seen = std::to_string(width) + "x" + std::to_string(height) + " pixels";
  if (width == 0 || height == 0)
    return make_error(ErrorCode::kCorruption, std::string(name) + ": the picture is " + seen);
  if (width > kMaxSide || height > kMaxSide || limits.max_pixels < 0 ||
      width * height > static_cast<std::uint64_t>(limits.max_pixels)) {
    return make_error(ErrorCode::kUnsupported,
                      std::string(name) + ": the picture is " + seen + ", the limit is " +
                          std::to_string(limits.max_pixels) + " pixels in all");
  }
  return {};
}

Result<Image> decode_image(std::span<const std::byte> bytes, std::string_view name,
                           const DecodeLimits& limits) {
  EVALCAR_ASSIGN_OR_RETURN(Decoded decoded, decode_any(bytes, name, limits, Want::kPixels));
  EVALCAR_ASSIGN_OR_RETURN(const int orientation, find_orientation(decoded.metadata, name));
  try {
    return apply_orientation(std::move(decoded.image), orientation);
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::kUnavailable,
                      std::string(name) + ": out of memory while turning the picture");
  }
}

Result<ImageSize> read_image_size(std::span<const std::byte> bytes, std::string_view name,
                                  const DecodeLimits& limits) {
  EVALCAR_ASSIGN_OR_RETURN(const Decoded decoded, decode_any(bytes, name, limits, Want::kSize));
  EVALCAR_ASSIGN_OR_RETURN(const int orientation, find_orientation(decoded.metadata, name));
  ImageSize size = decoded.size;
  if (swaps_sides(orientation)) std::swap(size.width, size.height);
  return size;
}

bool is_cut_off(std::span<const std::byte> bytes) {
  const auto decoded = decode_any(bytes, "", {}, Want::kSize);
  return decoded.has_value() && decoded->is_cut_off;
}

}  // namespace evalcar::vision
