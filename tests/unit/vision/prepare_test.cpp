#include <catch2/catch_test_macros.hpp>
#include <set>

#include "evaluator/vision/prepare.h"

using namespace evalcar;
using namespace evalcar::vision;

namespace {
Size size_of(const Result<Size>& size) {
  REQUIRE(size.has_value());
  return *size;
}
}  // namespace

TEST_CASE("halves are rounded to even, as Python's round does") {
  // 42 / 28 = 1.5 -> 2; 70 / 28 = 2.5 -> 2; 98 / 28 = 3.5 -> 4; 14 / 28 = 0.5 -> 0, then at
  // least 1.
  const auto resized = [](int h, int w) { return size_of(smart_resize(h, w, 28, 1, 1 << 30)); };
  CHECK(resized(42, 70) == Size{56, 56});
  CHECK(resized(98, 14) == Size{112, 28});
}

TEST_CASE("sizes under and over the limits are scaled into them") {
  CHECK(size_of(smart_resize(10, 10, 28, 3136, 12845056)) == Size{56, 56});
  CHECK(size_of(smart_resize(4000, 4000, 28, 3136, 12845056)) == Size{3584, 3584});
  CHECK(size_of(processor_smart_resize(2212, 1708, 28, 200704, 1605632)) == Size{1428, 1092});
}

TEST_CASE("a side over 200 times the other is an error, and exactly 200 is not") {
  CHECK(smart_resize(1, 200, 28, 3136, 12845056).has_value());
  const auto error = smart_resize(1, 201, 28, 3136, 12845056).error();
  CHECK(error.code == ErrorCode::kInvalidArgument);
  CHECK(error.message.find("201x1") != std::string::npos);
}

TEST_CASE("impossible limits and sizes are errors") {
  CHECK_FALSE(smart_resize(0, 5, 28, 1, 100).has_value());
  CHECK_FALSE(smart_resize(5, 5, 0, 1, 100).has_value());
  CHECK_FALSE(smart_resize(5, 5, 28, 100, 1).has_value());
  CHECK_FALSE(smart_resize(5, 5, 28, 0, 1).has_value());
  CHECK_FALSE(smart_resize(1000, 1000, 28, 1, 10).has_value());  // no multiple of 28 that small
}

TEST_CASE("a prepared picture has the announced grid, a multiple of the merge window") {
  const ProcessorSettings settings;
  for (const auto& [height, width] : {std::pair{1, 1}, {448, 448}, {31, 477}, {2200, 1700}}) {
    Image image{width, height, {}};
    image.rgb.resize(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3);

    const auto size = prepared_size(height, width, settings);
    const auto prepared = prepare_image(image, settings);

    REQUIRE(size.has_value());
    REQUIRE(prepared.has_value());
    CHECK(prepared->grid_h == size->grid_h);
    CHECK(prepared->grid_w == size->grid_w);
    CHECK(prepared->grid_h % 2 == 0);
    CHECK(prepared->grid_w % 2 == 0);
    CHECK(prepared->width == prepared->grid_w * 14);
    CHECK(prepared->height == prepared->grid_h * 14);
    CHECK(size->tokens == std::int64_t{size->grid_h} * size->grid_w / 4);
    const std::int64_t area = std::int64_t{prepared->width} * prepared->height;
    CHECK(area >= settings.min_pixels);
    CHECK(area <= settings.max_pixels);
  }
}

TEST_CASE("patches come in merge windows, each with its channels and rows, and one frame") {
  ProcessorSettings settings;
  settings.patch_size = 2;
  settings.merge_size = 2;
  settings.temporal_patch_size = 2;
  settings.image_mean = {0, 0, 0};
  settings.image_std = {1, 1, 1};
  settings.rescale_factor = 1;
  // A 4 x 8 picture whose red is its pixel number, green 100, blue 200.
  PreparedImage image;
  image.grid_h = 2;
  image.grid_w = 4;
  image.width = 8;
  image.height = 4;
  for (int i = 0; i < 32; ++i) {
    image.rgb.push_back(static_cast<std::uint8_t>(i));
    image.rgb.push_back(100);
    image.rgb.push_back(200);
  }
  std::vector<float> out(8 * 3 * 4 + 1, -1);

  write_patches(image, settings, out.data());

  const auto red = [&](std::size_t patch) {
    const auto at = static_cast<std::ptrdiff_t>(patch * 12);
    return std::vector<float>(out.begin() + at, out.begin() + at + 4);
  };
  CHECK(red(0) == std::vector<float>{0, 1, 8, 9});
  CHECK(red(1) == std::vector<float>{2, 3, 10, 11});
  CHECK(red(2) == std::vector<float>{16, 17, 24, 25});
  CHECK(red(3) == std::vector<float>{18, 19, 26, 27});
  CHECK(red(4) == std::vector<float>{4, 5, 12, 13});
  CHECK(out[4] == 100);
  CHECK(out[8] == 200);
  CHECK(out.back() == -1);  // nothing is written behind the last patch
}
