#include "evaluator/vision/jpeg_header.h"

namespace evalcar::vision {
namespace {

constexpr std::string_view kXmpPrefix{"http://ns.adobe.com/xap/1.0/\0", 29};

class MarkerWalk {
 public:
  MarkerWalk(Bytes bytes, std::string_view name) : bytes_(bytes), name_(name) {}

  Result<JpegHeader> run() {
    std::size_t at = 2;  // the FF of the marker after SOI
    while (true) {
      // Anything that is not FF is skipped, as is fill (FF FF) and a stuffed byte (FF 00).
      while (at < bytes_.size() && byte_at(bytes_, at) != 0xff) ++at;
      if (at + 1 >= bytes_.size()) return damaged(name_, "JPEG", "it ends before the first scan");
      const std::uint8_t code = byte_at(bytes_, at + 1);
      if (code == 0xff) {
        ++at;
        continue;
      }
      at += 2;
      if (code == 0) continue;
      if (code < 0xc0)
        return damaged(name_, "JPEG", "a marker is unknown: " + std::to_string(code));
      if (!has_segment(code)) continue;
      if (at + 2 > bytes_.size()) return truncated();
      const std::uint32_t length = big_endian_16(bytes_, at);
      at += 2;
      const std::size_t size = length > 2 ? length - 2 : 0;
      if (size > bytes_.size() - at) return truncated();
      EVALCAR_RETURN_IF_ERROR(read_segment(code, bytes_.subspan(at, size)));
      at += size;
      if (code == 0xda) break;
    }
    if (header_.components == 0)
      return damaged(name_, "JPEG", "the first scan has no frame header before it");
    header_.scan = at;
    header_.metadata.broken_exif_is_silent = !has_density_;
    return std::move(header_);
  }

 private:
  Error truncated() const { return damaged(name_, "JPEG", "a marker segment is truncated"); }

  static bool has_segment(std::uint8_t code) {
    const bool bare =
        (code >= 0xd0 && code <= 0xd9) || code == 0xc8 || (code >= 0xf0 && code <= 0xfd);
    return !bare;
  }

  Status read_segment(std::uint8_t code, Bytes segment) {
    const bool frame =
        (code >= 0xc0 && code <= 0xcf && code != 0xc4 && code != 0xc8 && code != 0xcc) ||
        code == 0xde;
    if (frame) return read_frame(segment);
    if (code >= 0xe0 && code <= 0xef) return read_application(code, segment);
    if (code == 0xdb) return check_quantization(segment);
    return {};
  }

  Status read_frame(Bytes segment) {
    if (segment.size() < 6) return truncated();
    const int bits = byte_at(segment, 0);
    if (bits != 8) {
      return make_error(ErrorCode::kUnsupported, std::string(name_) + ": JPEG: samples have " +
                                                     std::to_string(bits) + " bits, expected 8");
    }
    header_.height = static_cast<int>(big_endian_16(segment, 1));
    header_.width = static_cast<int>(big_endian_16(segment, 3));
    header_.components = byte_at(segment, 5);
    if (header_.components != 1 && header_.components != 3 && header_.components != 4) {
      return make_error(ErrorCode::kUnsupported, std::string(name_) + ": JPEG: it has " +
                                                     std::to_string(header_.components) +
                                                     " components, expected 1, 3 or 4");
    }
    if ((segment.size() - 6) % 3 != 0) return truncated();
    return {};
  }

  Status read_application(std::uint8_t code, Bytes segment) {
    const std::string_view text = text_of(segment);
    Metadata& metadata = header_.metadata;
    if (code == 0xe0 && text.starts_with("JFIF")) {
      if (segment.size() < 7) return truncated();
      if (segment.size() >= 12) {
        const int unit = byte_at(segment, 7);
        has_density_ = has_density_ || unit == 1 || unit == 2;
      }
    } else if (code == 0xe1 && text.starts_with(kExifPrefix)) {
      // A long EXIF block goes on in further segments.
      if (metadata.exif)
        metadata.exif->append(text.substr(6));
      else
        metadata.exif = std::string(text);
    } else if (code == 0xe1 && text.starts_with(kXmpPrefix)) {
      metadata.xmp = std::string(text.substr(kXmpPrefix.size()));
    } else if (code == 0xee && text.starts_with("Adobe") && segment.size() < 7) {
      return truncated();
    }
    return {};
  }

  Status check_quantization(Bytes segment) const {
    while (!segment.empty()) {
      const std::size_t size = byte_at(segment, 0) / 16 == 0 ? 65 : 129;
      if (segment.size() < size) return damaged(name_, "JPEG", "a quantization table is truncated");
      segment = segment.subspan(size);
    }
    return {};
  }

  Bytes bytes_;
  std::string_view name_;
  JpegHeader header_;
  bool has_density_ = false;
};

}  // namespace

Result<JpegHeader> read_jpeg_header(Bytes bytes, std::string_view name) {
  return MarkerWalk(bytes, name).run();
}

}  // namespace evalcar::vision
