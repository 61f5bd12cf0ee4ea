#include "evaluator/vision/anyres.h"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "evaluator/vision/prepare.h"

using namespace evalcar;
using namespace evalcar::vision;

namespace {

Anyres usual() { return {.resolutions = usual_resolutions()}; }

AnyresGrid grid_of(int width, int height, const Anyres& anyres = usual()) {
  const auto grid = anyres_grid({.width = width, .height = height}, anyres);
  REQUIRE(grid.has_value());
  return *grid;
}

/// Squares of 4 pixels, patches of 2; every pixel of the picture is its number.
ProcessorSettings small() {
  ProcessorSettings settings{.patch_size = 2, .merge_size = 1, .temporal_patch_size = 1};
  settings.sizing = Sizing::kAnyres;
  settings.anyres = Anyres{.tile = 4, .side = 2, .resolutions = {{.width = 8, .height = 4}}};
  return settings;
}

}  // namespace

TEST_CASE("the resolution that shows most of the picture wins, then the one that wastes least") {
  CHECK(grid_of(384, 384).resolution == ImageSize{.width = 384, .height = 384});
  CHECK(grid_of(385, 384).resolution == ImageSize{.width = 768, .height = 384});
  CHECK(grid_of(1, 1).resolution == ImageSize{.width = 384, .height = 384});
  CHECK(grid_of(5000, 5000).resolution == ImageSize{.width = 2304, .height = 2304});
}

TEST_CASE("the first of two resolutions that are as good is taken") {
  Anyres anyres = usual();
  anyres.resolutions = {{.width = 384, .height = 768}, {.width = 768, .height = 384}};
  CHECK(grid_of(10, 10, anyres).tile_rows == 2);

  std::swap(anyres.resolutions[0], anyres.resolutions[1]);
  CHECK(grid_of(10, 10, anyres).tile_rows == 1);
}

TEST_CASE("a square picture has its features, a newline a row, and the base") {
  const AnyresGrid grid = grid_of(384, 384);
  CHECK(grid.tiles() == 2);
  CHECK(grid.tokens() == 729 + 27 * 28);
  CHECK_FALSE(grid.shrunk());
}

TEST_CASE("borders are cut off, and what is over nine squares is shrunk") {
  const AnyresGrid wide = grid_of(768, 100);  // 100 of 384 rows: 7 of 27
  CHECK(wide.tile_columns == 2);
  CHECK(wide.rows == 7);
  CHECK(wide.first_row == 10);
  CHECK(wide.tokens() == 729 + 7 * 55);

  const AnyresGrid large = grid_of(2304, 2304);  // 36 squares: half of each side is kept
  CHECK(large.shrunk());
  CHECK(large.kept_rows == 81);
  CHECK(large.kept_columns == 81);
  CHECK(large.tokens() == 729 + 81 * 82);
}

TEST_CASE("a product that is whole but for its last bits counts as whole") {
  CHECK(grid_of(423, 47).rows == 7);  // 47 * (54 / 423) is 6, and one row more is kept for evenness
  CHECK(grid_of(820, 369).columns == 61);
}

TEST_CASE("a size that is none is refused") {
  CHECK_FALSE(anyres_grid({.width = 0, .height = 5}, usual()).has_value());
  CHECK_FALSE(anyres_grid({.width = 5, .height = -1}, usual()).has_value());
}

TEST_CASE("the squares of a picture follow each other, the whole picture first") {
  Image image{.width = 8, .height = 4, .rgb = {}};
  for (int pixel = 0; pixel < 32; ++pixel)
    image.rgb.insert(image.rgb.end(), 3, static_cast<std::uint8_t>(pixel));

  const auto prepared = prepare_image(image, small());
  const auto size = prepared_size(4, 8, small());

  REQUIRE(prepared.has_value());
  REQUIRE(size.has_value());
  CHECK(prepared->grid_t == 3);
  CHECK(prepared->grid_h == 2);
  CHECK(prepared->height == 12);
  CHECK(pixels_of(*size, small()) == ImageSize{.width = 4, .height = 12});
  const auto at = [&](int y, int x) {
    return prepared->rgb[static_cast<std::size_t>((y * 4 + x) * 3)];
  };
  CHECK(at(4, 0) == 0);  // the first square: columns 0 to 3
  CHECK(at(7, 3) == 27);
  CHECK(at(8, 0) == 4);  // the second one: columns 4 to 7
  CHECK(at(11, 3) == 31);
}

TEST_CASE("what a picture does not fill is black, in its middle") {
  Image image{.width = 4, .height = 4, .rgb = std::vector<std::uint8_t>(4 * 4 * 3, 200)};

  const auto prepared = prepare_image(image, small());

  REQUIRE(prepared.has_value());
  const auto at = [&](int y, int x) {
    return prepared->rgb[static_cast<std::size_t>((y * 4 + x) * 3)];
  };
  CHECK(at(0, 0) == 200);
  CHECK(at(4, 1) == 0);
  CHECK(at(4, 2) == 200);
  CHECK(at(8, 1) == 200);
  CHECK(at(8, 2) == 0);
}

TEST_CASE("lists of resolutions and aspect ratios that are none are refused by name") {
  using nlohmann::json;
  CHECK(read_resolutions(json::parse("[[384,768]]"), 384, "c")->front() ==
        ImageSize{.width = 768, .height = 384});
  for (const char* list : {"[]", "5", "{}", "[[384]]", "[[384,-384]]", "[[384,385]]", "[[384,1e3]]",
                           "[[384,99999999999999]]", "[[24576,24576]]", "[384,384]"}) {
    const auto read = read_resolutions(json::parse(list), 384, "c: image_grid_pinpoints");
    REQUIRE_FALSE(read.has_value());
    CHECK(read.error().message.starts_with("c: image_grid_pinpoints"));
  }
  CHECK(*read_most_tiles("anyres_max_9", "c") == 9);
  for (const char* text : {"anyres", "anyres_max_", "anyres_max_0", "anyres_max_9x", "square", ""})
    CHECK(read_most_tiles(text, "c").error().code == ErrorCode::kUnsupported);
}
