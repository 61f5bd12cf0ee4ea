// The orientation as Pillow 13.0 reads it (Image.getexif, TiffImagePlugin.ImageFileDirectory_v2)
// and Hugging Face datasets 5.2 applies it (Image.decode_example): after decoding, before the
// task's conversion to RGB; from the EXIF block, else from the XMP packet.
#include <array>
#include <bitset>
#include <cmath>
#include <cstring>
#include <utility>

#include "evaluator/vision/metadata.h"

namespace evalcar::vision {
namespace {

constexpr std::uint16_t kOrientationTag = 274;

// Bytes of a TIFF value of type 0 … 16; 0 for a type that Pillow skips.
constexpr std::array<std::uint8_t, 17> kTypeSizes = {0, 1, 1, 2, 4, 8, 1, 1, 2,
                                                     4, 8, 4, 8, 4, 0, 0, 8};

class TiffReader {
 public:
  TiffReader(std::string_view data, bool little) : data_(data), little_(little) {}

  bool has(std::uint64_t offset, std::uint64_t size) const {
    return offset <= data_.size() && size <= data_.size() - offset;
  }
  std::uint64_t number(std::uint64_t offset, int size) const {
    std::uint64_t value = 0;
    for (int i = 0; i < size; ++i) {
      const auto at =
          static_cast<std::size_t>(offset) + static_cast<std::size_t>(little_ ? size - 1 - i : i);
      value = (value << 8) | static_cast<std::uint8_t>(data_[at]);
    }
    return value;
  }
  std::uint64_t size() const { return data_.size(); }

 private:
  std::string_view data_;
  bool little_;
};

// The tag's first value if it equals a whole number (Python's dict looks 6, 6.0 and 6/1 up alike);
// 0 for anything else, which is no orientation.
int first_value(const TiffReader& tiff, std::uint64_t offset, unsigned type) {
  const auto small = [](double value) {
    return value >= 1 && value <= 8 && value == std::floor(value) ? static_cast<int>(value) : 0;
  };
  switch (type) {
    case 3:
    case 8:
      return small(static_cast<double>(tiff.number(offset, 2)));
    case 6:
      return small(static_cast<double>(tiff.number(offset, 1)));
    case 4:
    case 9:
    case 13:
      return small(static_cast<double>(tiff.number(offset, 4)));
    case 16:
      return small(static_cast<double>(tiff.number(offset, 8)));
    case 5:
    case 10: {
      const auto part = [&](std::uint64_t at) {
        const auto raw = static_cast<std::uint32_t>(tiff.number(at, 4));
        return type == 10 ? static_cast<double>(static_cast<std::int32_t>(raw))
                          : static_cast<double>(raw);
      };
      const double denominator = part(offset + 4);
      return denominator == 0 ? 0 : small(part(offset) / denominator);
    }
    case 11: {
      const auto raw = static_cast<std::uint32_t>(tiff.number(offset, 4));
      float value;
      std::memcpy(&value, &raw, sizeof value);
      return small(static_cast<double>(value));
    }
    case 12: {
      const std::uint64_t raw = tiff.number(offset, 8);
      double value;
      std::memcpy(&value, &raw, sizeof value);
      return small(value);
    }
    default:  // bytes and text
      return 0;
  }
}

// Walks the first directory as ImageFileDirectory_v2.load does, with its ways out: an entry that
// reaches over the end stops the reading, one whose data is over the file's size is skipped.
// nullopt if there is no orientation tag.
std::optional<int> orientation_in_directory(const TiffReader& tiff) {
  std::uint64_t at = tiff.number(4, 4);
  if (!tiff.has(at, 2)) return std::nullopt;
  const std::uint64_t entries = tiff.number(at, 2);
  at += 2;
  std::uint64_t total = 0;
  std::bitset<65536> known;
  std::optional<int> orientation;
  for (std::uint64_t i = 0; i < entries; ++i, at += 12) {
    if (!tiff.has(at, 12)) return orientation;
    const auto tag = static_cast<std::size_t>(tiff.number(at, 2));
    const auto type = static_cast<unsigned>(tiff.number(at + 2, 2));
    const std::uint64_t count = tiff.number(at + 4, 4);
    if (known[tag]) continue;
    const std::uint64_t unit = type < kTypeSizes.size() ? kTypeSizes[type] : 0;
    if (unit == 0 || count == 0) continue;
    const std::uint64_t size = count * unit;
    std::uint64_t data = at + 8;
    if (size > 4) {
      data = tiff.number(at + 8, 4);
      total += size;
      if (total > tiff.size()) continue;
      if (!tiff.has(data, size)) return orientation;
    }
    known.set(tag);
    if (tag == kOrientationTag) orientation = first_value(tiff, data, type);
  }
  return orientation;
}

// nullopt if the block has no orientation tag.
Result<std::optional<int>> orientation_in_exif(std::string_view block, std::string_view name) {
  for (int i = 0; i < 2 && block.starts_with(kExifPrefix); ++i) block.remove_prefix(6);
  if (block.empty()) return std::optional<int>{};
  const std::string_view mark = block.substr(0, 4);
  constexpr std::string_view kBig{"MM\0\x2a", 4};
  constexpr std::string_view kLittle{"II\x2a\0", 4};
  constexpr std::string_view kOddBig{"MM\x2a\0", 4};
  constexpr std::string_view kOddLittle{"II\0\x2a", 4};
  constexpr std::string_view kBigTiff{"MM\0\x2b", 4};  // which Pillow reads as classic TIFF
  const bool little = mark == kLittle || mark == kOddLittle;
  if (!little && mark != kBig && mark != kOddBig && mark != kBigTiff)
    return damaged(name, "EXIF", "the block does not begin with a TIFF header");
  if (block.size() < 8) return damaged(name, "EXIF", "the TIFF header is truncated");
  return orientation_in_directory(TiffReader(block, little));
}

// The pattern tiff:Orientation(="|>)([0-9]); nullopt if it is not there.
std::optional<int> orientation_in_xmp(std::string_view xmp) {
  constexpr std::string_view kKey = "tiff:Orientation";
  for (std::size_t at = xmp.find(kKey); at != std::string_view::npos; at = xmp.find(kKey, at + 1)) {
    std::string_view rest = xmp.substr(at + kKey.size());
    if (rest.starts_with("=\""))
      rest.remove_prefix(2);
    else if (rest.starts_with('>'))
      rest.remove_prefix(1);
    else
      continue;
    if (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') return rest[0] - '0';
  }
  return std::nullopt;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// bytes.fromhex() of the lines after the third; blanks are allowed between bytes.
Result<std::string> from_hex_profile(std::string_view text, std::string_view name) {
  for (int line = 0; line < 3; ++line) {
    const std::size_t end = text.find('\n');
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  }
  std::string bytes;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '\n' || std::string_view(" \t\r\v\f").find(text[i]) != std::string_view::npos) {
      ++i;
      continue;
    }
    std::size_t next = i + 1;
    while (next < text.size() && text[next] == '\n') ++next;
    const int high = hex_digit(text[i]);
    const int low = next < text.size() ? hex_digit(text[next]) : -1;
    if (high < 0 || low < 0)
      return damaged(name, "PNG", "the text \"Raw profile type exif\" is not hexadecimal");
    bytes.push_back(static_cast<char>(high * 16 + low));
    i = next + 1;
  }
  return bytes;
}

}  // namespace

Result<int> find_orientation(const Metadata& metadata, std::string_view name) {
  std::optional<std::string> block = metadata.exif;
  if (!block && metadata.hex_exif) {
    EVALCAR_ASSIGN_OR_RETURN(block, from_hex_profile(*metadata.hex_exif, name));
  }
  std::optional<int> orientation;
  if (block) {
    auto found = orientation_in_exif(*block, name);
    if (!found) {
      if (metadata.broken_exif_is_silent) return 1;
      return std::move(found).error();
    }
    orientation = *found;
  }
  if (!orientation) orientation = orientation_in_xmp(metadata.xmp);
  return orientation && *orientation >= 1 && *orientation <= 8 ? *orientation : 1;
}

Image apply_orientation(Image image, int orientation) {
  if (orientation <= 1 || orientation > 8) return image;
  Image turned;
  turned.width = swaps_sides(orientation) ? image.height : image.width;
  turned.height = swaps_sides(orientation) ? image.width : image.height;
  turned.rgb.resize(image.rgb.size());
  turned.is_incomplete = image.is_incomplete;
  const std::int64_t w = image.width;
  const std::int64_t h = image.height;
  // Where the source pixel (x, y) goes is start + x * step_x + y * step_y.
  struct Move {
    std::int64_t start, step_x, step_y;
  };
  const Move moves[] = {
      {w - 1, -1, w},        // 2 mirrored left to right
      {w * h - 1, -1, -w},   // 3 upside down
      {(h - 1) * w, 1, -w},  // 4 mirrored top to bottom
      {0, h, 1},             // 5 transposed
      {h - 1, h, -1},        // 6 turned right
      {w * h - 1, -h, -1},   // 7 transposed along the other diagonal
      {(w - 1) * h, -h, 1},  // 8 turned left
  };
  const Move move = moves[orientation - 2];
  const std::uint8_t* in = image.rgb.data();
  for (std::int64_t y = 0; y < h; ++y) {
    std::int64_t target = move.start + y * move.step_y;
    for (std::int64_t x = 0; x < w; ++x, in += 3, target += move.step_x)
      std::memcpy(turned.rgb.data() + target * 3, in, 3);
  }
  return turned;
}

}  // namespace evalcar::vision
