#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <random>

#include "evaluator/vision/resample.h"

using namespace evalcar;
using namespace evalcar::vision;

namespace {

Image noise(int width, int height, unsigned seed) {
  std::mt19937 random(seed);
  Image image{width, height, {}};
  image.rgb.resize(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3);
  for (std::uint8_t& byte : image.rgb) {
    const auto value = random();
    byte = static_cast<std::uint8_t>((value & 0x300) == 0 ? 255 : value);
  }
  return image;
}

}  // namespace

TEST_CASE("the vector code gives the bytes of the plain code for every small size") {
  const auto kind = GENERATE(Resampler::kPillow, Resampler::kTorchvision);
  std::mt19937 random(7);
  for (int i = 0; i < 400; ++i) {
    const auto side = [&] { return 1 + static_cast<int>(random() % 70); };
    const Image image = noise(side(), side(), static_cast<unsigned>(random()));
    const int height = side();
    const int width = side();
    INFO(image.width << "x" << image.height << " -> " << width << "x" << height);

    const auto fast = resize_bicubic(image, height, width, kind, ResampleCode::kFastest);
    const auto plain = resize_bicubic(image, height, width, kind, ResampleCode::kPortable);

    REQUIRE(fast.has_value());
    REQUIRE(plain.has_value());
    REQUIRE(fast->rgb == plain->rgb);
    REQUIRE(fast->width == width);
    REQUIRE(fast->height == height);
  }
}

TEST_CASE("a constant picture stays constant at any size") {
  for (const int level : {0, 1, 127, 254, 255}) {
    const auto value = static_cast<std::uint8_t>(level);
    Image image{13, 9, std::vector<std::uint8_t>(13 * 9 * 3, value)};
    for (const auto kind : {Resampler::kPillow, Resampler::kTorchvision}) {
      const auto resized = resize_bicubic(image, 31, 5, kind);
      REQUIRE(resized.has_value());
      CHECK(resized->rgb == std::vector<std::uint8_t>(31 * 5 * 3, value));
    }
  }
}

TEST_CASE("the weights of one output pixel add up to one within their rounding") {
  for (const auto kind : {Resampler::kPillow, Resampler::kTorchvision}) {
    for (const auto& [in, out] : {std::pair{1, 28}, {640, 28}, {28, 640}, {1000, 999}}) {
      const ResampleAxis axis = make_axis(kind, in, out);
      REQUIRE(axis.first.size() == static_cast<std::size_t>(out));
      for (int i = 0; i < out; ++i) {
        const auto at = static_cast<std::size_t>(i);
        std::int64_t sum = 0;
        for (int j = 0; j < axis.taps; ++j)
          sum +=
              axis.weights[at * static_cast<std::size_t>(axis.taps) + static_cast<std::size_t>(j)];
        CHECK(std::abs(sum - (std::int64_t{1} << axis.bits)) <= axis.count[at]);
        CHECK(axis.first[at] >= 0);
        CHECK(axis.first[at] + axis.count[at] <= in);
        CHECK(axis.count[at] <= axis.taps);
      }
    }
  }
}

TEST_CASE("equal sizes give a copy, and sizes that are not positive an error") {
  const Image image = noise(5, 4, 1);

  CHECK(resize_bicubic(image, 4, 5, Resampler::kPillow)->rgb == image.rgb);
  CHECK_FALSE(resize_bicubic(image, 0, 5, Resampler::kPillow).has_value());
  CHECK_FALSE(resize_bicubic(image, 4, -1, Resampler::kPillow).has_value());
  CHECK_FALSE(resize_bicubic(Image{}, 4, 4, Resampler::kPillow).has_value());
}
