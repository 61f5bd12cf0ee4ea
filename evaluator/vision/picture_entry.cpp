#include "evaluator/vision/picture_entry.h"

#include <array>
#include <cstring>
#include <span>
#include <type_traits>

namespace evalcar::vision {
namespace {

constexpr std::array<char, 8> kMagic = {'e', 'v', 'c', 'p', 'i', 'c', '0', '1'};
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30U;
constexpr std::uint32_t kMostSide = 1U << 20U;

// As the machine holds it: a cache does not travel.
struct Header {
  std::array<char, 8> magic = kMagic;
  PictureKey key = {};
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::uint64_t pixels_xxh3 = 0;
  std::uint64_t header_xxh3 = 0;  // of all above
};
static_assert(sizeof(Header) == 64 && std::is_trivially_copyable_v<Header>);

std::uint64_t checksum_of(const Header& header) {
  const auto bytes = std::as_bytes(std::span(&header, 1));
  return xxh3_64(bytes.first(bytes.size() - sizeof(header.header_xxh3)));
}

Error damaged_entry(const std::string& path, const std::string& what) {
  return make_error(ErrorCode::kCorruption, path + ": " + what);
}

}  // namespace

std::uint64_t entry_bytes(const PreparedImage& image) { return sizeof(Header) + image.rgb.size(); }

Status write_entry(WritableFile& file, const PictureKey& key, const PreparedImage& image) {
  Header header{.key = key,
                .width = static_cast<std::uint32_t>(image.width),
                .height = static_cast<std::uint32_t>(image.height)};
  header.pixels_xxh3 = xxh3_64(std::as_bytes(std::span(image.rgb)));
  header.header_xxh3 = checksum_of(header);
  EVALCAR_RETURN_IF_ERROR(file.append(std::as_bytes(std::span(&header, 1))));
  return file.append(std::as_bytes(std::span(image.rgb)));
}

Result<PreparedImage> read_entry(const ReadableFile& file, const PictureKey& key,
                                 const std::string& path) {
  EVALCAR_ASSIGN_OR_RETURN(const FileInfo info, file.info());
  if (info.size_bytes < sizeof(Header) || info.size_bytes > kMostBytes)
    return damaged_entry(path,
                         std::to_string(info.size_bytes) + " bytes, which no prepared picture has");
  Header header;
  EVALCAR_RETURN_IF_ERROR(
      file.read_exactly_at(0, std::as_writable_bytes(std::span(&header, 1)), path));
  if (header.magic != kMagic || header.header_xxh3 != checksum_of(header))
    return damaged_entry(path, "its first 64 bytes are not those of a prepared picture");
  if (header.key != key) return damaged_entry(path, "is of another picture than its name says");
  if (header.width > kMostSide || header.height > kMostSide ||
      info.size_bytes != sizeof(Header) + std::uint64_t{header.width} * header.height * 3)
    return damaged_entry(path, std::to_string(info.size_bytes) + " bytes for " +
                                   std::to_string(header.width) + "x" +
                                   std::to_string(header.height) + " pixels");
  PreparedImage image;
  image.width = static_cast<int>(header.width);
  image.height = static_cast<int>(header.height);
  image.rgb.resize(static_cast<std::size_t>(info.size_bytes - sizeof(Header)));
  EVALCAR_RETURN_IF_ERROR(
      file.read_exactly_at(sizeof(Header), std::as_writable_bytes(std::span(image.rgb)), path));
  if (xxh3_64(std::as_bytes(std::span(image.rgb))) != header.pixels_xxh3)
    return damaged_entry(path, "its pixels are not those that were written");
  return image;
}

}  // namespace evalcar::vision
