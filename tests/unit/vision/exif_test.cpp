#include <catch2/catch_test_macros.hpp>
#include <string>

#include "evaluator/vision/metadata.h"

using namespace evalcar;
using namespace evalcar::vision;

namespace {

std::string little(std::uint32_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text.push_back(static_cast<char>((value >> (8 * i)) & 0xff));
  return text;
}

struct Entry {
  std::uint32_t tag, type, count, value;
};

std::string exif(std::initializer_list<Entry> entries, std::string_view behind = "") {
  std::string block("Exif\0\0II*\0\x08\0\0\0", 14);
  block += little(static_cast<std::uint32_t>(entries.size()), 2);
  for (const Entry& e : entries)
    block += little(e.tag, 2) + little(e.type, 2) + little(e.count, 4) + little(e.value, 4);
  return block + little(0, 4) + std::string(behind);
}

int orientation_of(const std::string& block, const std::string& xmp = "") {
  Metadata metadata;
  if (!block.empty()) metadata.exif = block;
  metadata.xmp = xmp;
  const auto found = find_orientation(metadata, "file");
  REQUIRE(found.has_value());
  return *found;
}

Image numbered(int width, int height) {
  Image image{width, height, {}};
  for (int i = 0; i < width * height; ++i)
    image.rgb.insert(image.rgb.end(), 3, static_cast<std::uint8_t>(i));
  return image;
}

std::string first_channel(const Image& image) {
  std::string text;
  for (std::size_t i = 0; i < image.rgb.size(); i += 3) {
    if (i != 0 && (i / 3) % static_cast<std::size_t>(image.width) == 0) text += '/';
    text += static_cast<char>('0' + image.rgb[i]);
  }
  return text;
}

}  // namespace

TEST_CASE("each orientation turns a picture as Pillow's exif_transpose does") {
  // 012
  // 345
  const std::string expected[] = {"012/345",  "210/543",  "543/210",  "345/012",
                                  "03/14/25", "30/41/52", "52/41/30", "25/14/03"};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    INFO("orientation " << orientation);
    CHECK(first_channel(apply_orientation(numbered(3, 2), orientation)) ==
          expected[orientation - 1]);
  }
}

TEST_CASE("an orientation is found whatever whole-number type holds it") {
  CHECK(orientation_of(exif({{274, 3, 1, 6}})) == 6);
  CHECK(orientation_of(exif({{274, 4, 1, 8}})) == 8);
  CHECK(orientation_of(exif({{274, 9, 1, 3}})) == 3);
  CHECK(orientation_of(exif({{274, 6, 1, 5}})) == 5);
  CHECK(orientation_of(exif({{274, 11, 1, 0x40c00000}})) == 6);                       // 6.0
  CHECK(orientation_of(exif({{274, 5, 1, 26}}, little(12, 4) + little(2, 4))) == 6);  // 12/2
}

TEST_CASE("bytes, text, odd numbers and an empty value are no orientation") {
  CHECK(orientation_of(exif({{274, 1, 1, 6}})) == 1);
  CHECK(orientation_of(exif({{274, 2, 2, '6'}})) == 1);
  CHECK(orientation_of(exif({{274, 7, 1, 6}})) == 1);
  CHECK(orientation_of(exif({{274, 3, 1, 9}})) == 1);
  CHECK(orientation_of(exif({{274, 3, 1, 0}})) == 1);
  CHECK(orientation_of(exif({{274, 3, 0, 6}})) == 1);
  CHECK(orientation_of(exif({{274, 99, 1, 6}})) == 1);
  CHECK(orientation_of(exif({{274, 5, 1, 26}}, little(6, 4) + little(0, 4))) == 1);  // 6/0
  CHECK(orientation_of(exif({})) == 1);
}

TEST_CASE("an entry that reaches over the end stops the directory, as in Pillow") {
  CHECK(orientation_of(exif({{274, 3, 1, 6}, {256, 4, 4, 60}})) == 6);
  CHECK(orientation_of(exif({{256, 4, 4, 60}, {274, 3, 1, 6}})) == 1);
  // One whose size alone is over the file's is skipped.
  CHECK(orientation_of(exif({{256, 4, 0xffffffff, 0}, {274, 3, 1, 6}})) == 6);
}

TEST_CASE("XMP is asked only where EXIF has no orientation") {
  const std::string attribute = "<rdf tiff:Orientation=\"6\"/>";
  CHECK(orientation_of("", attribute) == 6);
  CHECK(orientation_of("", "<tiff:Orientation>8</tiff:Orientation>") == 8);
  CHECK(orientation_of(exif({{274, 3, 1, 1}}), attribute) == 1);
  CHECK(orientation_of(exif({{256, 3, 1, 1}}), attribute) == 6);
  CHECK(orientation_of("", "tiff:Orientation='6' tiff:Orientation>3") == 3);
  CHECK(orientation_of("", "tiff:Orientation=\"9\"") == 1);
}

TEST_CASE("a block that is not EXIF is an error, but silent where Pillow has swallowed it") {
  Metadata metadata;
  metadata.exif = "Exif\0\0nonsense";
  metadata.exif->resize(14, 'x');
  CHECK(find_orientation(metadata, "file").error().code == ErrorCode::kCorruption);

  metadata.broken_exif_is_silent = true;
  metadata.xmp = "tiff:Orientation>3";
  CHECK(find_orientation(metadata, "file").value() == 1);
}

TEST_CASE("every prefix of an EXIF block is an orientation or an error") {
  const std::string block = exif({{256, 4, 2, 38}, {274, 3, 1, 6}}, "12345678");
  for (std::size_t size = 0; size <= block.size(); ++size) {
    Metadata metadata;
    metadata.exif = block.substr(0, size);
    const auto found = find_orientation(metadata, "file");
    if (found) CHECK((*found == 1 || *found == 6));
  }
}

TEST_CASE("the hexadecimal EXIF of a PNG text is read after its three lines") {
  Metadata metadata;
  std::string hex = "\nexif\n      40\n";
  for (const char c : exif({{274, 3, 1, 6}})) {
    constexpr std::string_view digits = "0123456789abcdef";
    hex += digits[static_cast<unsigned char>(c) >> 4];
    hex += digits[static_cast<unsigned char>(c) & 15];
  }
  metadata.hex_exif = hex;
  CHECK(find_orientation(metadata, "file").value() == 6);

  metadata.hex_exif = hex + "x";
  CHECK_FALSE(find_orientation(metadata, "file").has_value());
}
