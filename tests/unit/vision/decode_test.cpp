// Hostile files: every prefix, every byte changed, lies about sizes, bombs. What the pixels must be
// is tested against Pillow itself in tests/parity/vision.
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <thread>
#include <vector>

#include "evaluator/vision/image.h"
#include "small_pictures.h"

using namespace evalcar;
using namespace evalcar::vision;
using namespace evalcar::vision::testing;

namespace {

using Buffer = std::vector<std::byte>;

Buffer from_hex(std::string_view text) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  Buffer bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(digit(text[i]) * 16 + digit(text[i + 1])));
  return bytes;
}

Buffer from_text(std::string_view text) {
  Buffer bytes;
  for (const char c : text) bytes.push_back(static_cast<std::byte>(c));
  return bytes;
}

struct Sample {
  std::string_view name;
  std::string_view hex;
  int width;
  int height;
};
constexpr Sample kSamples[] = {
    {"grey.jpg", kGreyJpeg, 9, 7},    {"progressive.jpg", kProgressiveJpeg, 7, 9},
    {"plain.png", kPng, 2, 3},        {"interlaced.png", kInterlacedPng, 5, 4},
    {"lossy.webp", kLossyWebp, 5, 4}, {"lossless.webp", kLosslessWebp, 2, 3},
};

void put_big_endian(Buffer& bytes, std::size_t at, std::uint32_t value) {
  for (std::size_t i = 0; i < 4; ++i)
    bytes[at + i] = static_cast<std::byte>((value >> (24 - 8 * i)) & 0xff);
}

// CRC-32 of the IHDR chunk at its usual place, so that only the size is the lie.
void mend_header_checksum(Buffer& png) {
  std::uint32_t crc = 0xffffffff;
  for (std::size_t i = 12; i < 29; ++i) {
    crc ^= std::to_integer<std::uint32_t>(png[i]);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320U : 0U);
  }
  put_big_endian(png, 29, ~crc);
}

Buffer png_of_size(std::uint32_t width, std::uint32_t height) {
  Buffer png = from_hex(kPng);
  put_big_endian(png, 16, width);
  put_big_endian(png, 20, height);
  mend_header_checksum(png);
  return png;
}

bool is_file_error(const Error& error) {
  return error.code == ErrorCode::kCorruption || error.code == ErrorCode::kUnsupported;
}

}  // namespace

TEST_CASE("small pictures of every format decode, turned as their EXIF says") {
  for (const Sample& sample : kSamples) {
    INFO(sample.name);
    const Buffer bytes = from_hex(sample.hex);

    const auto image = decode_image(bytes, sample.name);

    REQUIRE(image.has_value());
    CHECK(image->width == sample.width);
    CHECK(image->height == sample.height);
    CHECK(image->rgb.size() == static_cast<std::size_t>(sample.width * sample.height * 3));
  }
}

TEST_CASE("the size read from the header is the size that decoding gives") {
  for (const Sample& sample : kSamples) {
    INFO(sample.name);
    const auto size = read_image_size(from_hex(sample.hex), sample.name);

    REQUIRE(size.has_value());
    CHECK(size->width == sample.width);
    CHECK(size->height == sample.height);
  }
}

TEST_CASE(
    "every prefix of a picture decodes to pixels of the same size or is an error that names it") {
  for (const Sample& sample : kSamples) {
    const Buffer bytes = from_hex(sample.hex);
    const auto whole = decode_image(bytes, sample.name);
    REQUIRE(whole.has_value());
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      INFO(sample.name << " cut to " << size << " of " << bytes.size());
      // A buffer of its own, so that a sanitizer sees a read past its end.
      const Buffer prefix(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));

      const auto image = decode_image(prefix, sample.name);

      if (image) {
        // What is missing is made up; EXIF after the data may be among it.
        CHECK(image->rgb.size() == whole->rgb.size());
        CHECK((is_cut_off(prefix) || !image->is_incomplete));
        continue;
      }
      CHECK(is_file_error(image.error()));
      CHECK_FALSE(image.error().retryable);
      CHECK(image.error().message.find(sample.name) != std::string::npos);
    }
  }
}

TEST_CASE("a picture with any byte changed decodes or is an error, and nothing else happens") {
  for (const Sample& sample : kSamples) {
    const Buffer bytes = from_hex(sample.hex);
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      for (const int flip : {0x01, 0x10, 0x80, 0xff}) {
        INFO(sample.name << " byte " << at << " xor " << flip);
        Buffer changed = bytes;
        changed[at] ^= static_cast<std::byte>(flip);

        const auto image = decode_image(changed, sample.name, {.max_pixels = 1 << 20});
        const auto size = read_image_size(changed, sample.name, {.max_pixels = 1 << 20});

        if (image) {
          REQUIRE(size.has_value());
          CHECK(size->width == image->width);
          CHECK(size->height == image->height);
          CHECK(static_cast<std::int64_t>(image->rgb.size()) ==
                std::int64_t{image->width} * image->height * 3);
        } else {
          CHECK(is_file_error(image.error()));
        }
      }
    }
  }
}

TEST_CASE("a picture over the pixel limit is refused before its memory is asked for") {
  const Buffer bomb = png_of_size(0x7fffffff, 0x7fffffff);

  const auto image = decode_image(bomb, "bomb.png");

  REQUIRE_FALSE(image.has_value());
  CHECK(image.error().code == ErrorCode::kUnsupported);
  CHECK(image.error().message ==
        "bomb.png: the picture is 2147483647x2147483647 pixels, the limit is 178956970 pixels in "
        "all");
  CHECK_FALSE(read_image_size(bomb, "bomb.png").has_value());
}

TEST_CASE("the pixel limit is exact, and a limit of the caller's is kept") {
  const Buffer png = from_hex(kPng);

  CHECK(decode_image(png, "p", {.max_pixels = 6}).has_value());
  CHECK_FALSE(decode_image(png, "p", {.max_pixels = 5}).has_value());
  CHECK_FALSE(decode_image(from_hex(kGreyJpeg), "p", {.max_pixels = 62}).has_value());
  CHECK_FALSE(decode_image(from_hex(kLossyWebp), "p", {.max_pixels = 19}).has_value());
}

TEST_CASE("sides that overflow 32 and 64 bits are errors") {
  for (const std::uint32_t side : {0x80000000U, 0xffffffffU}) {
    CHECK_FALSE(decode_image(png_of_size(side, 1), "p").has_value());
    CHECK_FALSE(decode_image(png_of_size(1, side), "p").has_value());
    CHECK_FALSE(decode_image(png_of_size(side, side), "p").has_value());
  }
}

TEST_CASE("a picture of no pixels is damaged") {
  const auto image = decode_image(png_of_size(0, 3), "none.png");

  REQUIRE_FALSE(image.has_value());
  CHECK(image.error().code == ErrorCode::kCorruption);
}

TEST_CASE("a PNG that promises more rows than it has is filled up with black") {
  const auto long_one = decode_image(png_of_size(3, 1000), "long.png");
  const auto wide = decode_image(png_of_size(1000, 2), "wide.png");

  for (const auto* image : {&long_one, &wide}) {
    REQUIRE(image->has_value());
    CHECK((*image)->is_incomplete);
    CHECK((*image)->rgb.back() == 0);
  }
  CHECK(long_one->rgb.size() == 9000U);
  CHECK(wide->rgb == std::vector<std::uint8_t>(6000));  // not one row of it is whole
  CHECK_FALSE(decode_image(from_hex(kPng), "whole.png")->is_incomplete);
}

TEST_CASE(
    "a JPEG that promises more rows than it has is filled up, with its end marker or without") {
  Buffer jpeg = from_hex(kGreyJpeg);
  for (std::size_t i = 0; i + 6 < jpeg.size(); ++i) {
    if (jpeg[i] == std::byte{0xff} && jpeg[i + 1] == std::byte{0xc0}) {
      jpeg[i + 5] = std::byte{0x40};  // 0x4007 rows
      break;
    }
  }

  const auto filled = decode_image(jpeg, "tall.jpg");
  CHECK_FALSE(is_cut_off(jpeg));
  jpeg.resize(jpeg.size() - 2);
  const auto truncated = decode_image(jpeg, "tall.jpg");

  REQUIRE(filled.has_value());  // as in Pillow, for which this is a warning of libjpeg's
  CHECK(filled->height == 0x4007);
  REQUIRE(truncated.has_value());
  CHECK(truncated->is_incomplete);
  CHECK(truncated->rgb == filled->rgb);
  CHECK(is_cut_off(jpeg));
}

TEST_CASE("a picture that is turned is as incomplete as before") {
  for (const Sample& sample : kSamples) CHECK_FALSE(is_cut_off(from_hex(sample.hex)));
  Buffer turned = from_hex(kProgressiveJpeg);
  turned.resize(turned.size() - 2);

  const auto image = decode_image(turned, "turned.jpg");

  REQUIRE(image.has_value());
  CHECK(image->is_incomplete);
  CHECK_FALSE(is_cut_off(from_text("no picture")));
}

TEST_CASE("a file of another format is unsupported, by its name where it is known") {
  const auto message = [](std::string_view text) {
    const auto image = decode_image(from_text(text), "file");
    REQUIRE_FALSE(image.has_value());
    CHECK(image.error().code == ErrorCode::kUnsupported);
    return image.error().message;
  };

  CHECK(message("GIF89a......") == "file: it looks like GIF; expected JPEG, PNG or WebP");
  CHECK(message("%PDF-1.7").find("PDF") != std::string::npos);
  CHECK(message("II*\0").find("TIFF") != std::string::npos);
  CHECK(message("").find("empty") != std::string::npos);
  CHECK(message("<html>").find("not those of a picture") != std::string::npos);
}

TEST_CASE("pictures decode in several threads at once to the same pixels") {
  const Buffer bytes = from_hex(kProgressiveJpeg);
  const auto expected = decode_image(bytes, "p");
  REQUIRE(expected.has_value());
  std::vector<int> equal(4, 0);

  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < equal.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const auto image = decode_image(bytes, "p");
        equal[t] += image && image->rgb == expected->rgb ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  CHECK(equal == std::vector<int>(4, 50));
}
