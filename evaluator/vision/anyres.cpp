#include "evaluator/vision/anyres.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace evalcar::vision {
namespace {

constexpr int kUsualTile = 384;
constexpr int kUsualMost = 6;
constexpr std::size_t kMostResolutions = 1024;
constexpr std::int64_t kMostTilesPerSide = 64;
constexpr int kMostTiles = 10000;
constexpr std::int64_t kMostPixels = std::int64_t{1}
                                     << 26;  // 2304 by 2304, the usual most, is 5.3 M
constexpr double kLeastShrink = 1.1;         // pack_image_features leaves smaller surpluses alone

/// Python's int(round(x, 7)): rounding is done on the decimal digits of the exact value.
int python_rounded(double x) {
  std::array<char, 64> digits{};
  const auto end =
      std::to_chars(digits.data(), digits.data() + digits.size(), x, std::chars_format::fixed, 7);
  double rounded = x;
  std::from_chars(digits.data(), end.ptr, rounded);
  return static_cast<int>(rounded);
}

/// Python's int(a // b) of positive floats: the quotient that goes with fmod's remainder.
int python_quotient(double a, double b) {
  const double quotient = (a - std::fmod(a, b)) / b;
  const double floored = std::floor(quotient);
  return static_cast<int>(quotient - floored > 0.5 ? floored + 1 : floored);
}

// select_best_resolution: most of the picture's pixels, then least waste, then the first.
ImageSize best_resolution(ImageSize picture, std::span<const ImageSize> resolutions) {
  const std::int64_t all = std::int64_t{picture.width} * picture.height;
  ImageSize best;
  std::int64_t most_effective = 0;
  std::int64_t least_wasted = std::numeric_limits<std::int64_t>::max();
  for (const ImageSize& size : resolutions) {
    const double scale = std::min(static_cast<double>(size.width) / picture.width,
                                  static_cast<double>(size.height) / picture.height);
    const auto width = static_cast<std::int64_t>(picture.width * scale);
    const auto height = static_cast<std::int64_t>(picture.height * scale);
    const std::int64_t effective = std::min(width * height, all);
    const std::int64_t wasted = std::int64_t{size.width} * size.height - effective;
    if (effective > most_effective || (effective == most_effective && wasted < least_wasted)) {
      most_effective = effective;
      least_wasted = wasted;
      best = size;
    }
  }
  return best;
}

// unpad_image: the border above and below, or left and right, is cut off.
void cut_border(ImageSize picture, AnyresGrid& grid) {
  const int height = grid.rows;
  const int width = grid.columns;
  const double ratio = static_cast<double>(picture.width) / picture.height;
  if (ratio > static_cast<double>(width) / height) {
    const int shown = python_rounded(picture.height * (static_cast<double>(width) / picture.width));
    grid.first_row = std::max(0, (height - shown) / 2);
    grid.rows = height - 2 * grid.first_row;
  } else {
    const int shown =
        python_rounded(picture.width * (static_cast<double>(height) / picture.height));
    grid.first_column = std::max(0, (width - shown) / 2);
    grid.columns = width - 2 * grid.first_column;
  }
}

}  // namespace

Result<AnyresGrid> anyres_grid(ImageSize picture, const Anyres& anyres) {
  if (picture.width < 1 || picture.height < 1)
    return make_error(ErrorCode::kInvalidArgument, "a picture of " + std::to_string(picture.width) +
                                                       "x" + std::to_string(picture.height) +
                                                       " pixels cannot be cut into squares");
  AnyresGrid grid;
  grid.resolution = best_resolution(picture, anyres.resolutions);
  grid.tile_rows = grid.resolution.height / anyres.tile;
  grid.tile_columns = grid.resolution.width / anyres.tile;
  grid.rows = grid.tile_rows * anyres.side;
  grid.columns = grid.tile_columns * anyres.side;
  cut_border(picture, grid);
  grid.kept_rows = grid.rows;
  grid.kept_columns = grid.columns;
  const std::int64_t square = std::int64_t{anyres.side} * anyres.side;
  const double ratio = std::sqrt(static_cast<double>(std::int64_t{grid.rows} * grid.columns) /
                                 static_cast<double>(anyres.most_tiles * square));
  if (ratio > kLeastShrink) {
    grid.kept_rows = python_quotient(grid.rows, ratio);
    grid.kept_columns = python_quotient(grid.columns, ratio);
    if (grid.kept_rows < 1 || grid.kept_columns < 1)
      return make_error(ErrorCode::kInvalidArgument,
                        "a picture of " + std::to_string(picture.width) + "x" +
                            std::to_string(picture.height) +
                            " pixels: nothing is left of it after anyres_max_" +
                            std::to_string(anyres.most_tiles) + " (an error in transformers, too)");
  }
  grid.base_features = square;
  return grid;
}

ImageSize fitted_size(ImageSize picture, ImageSize resolution) {
  const double by_width = static_cast<double>(resolution.width) / picture.width;
  const double by_height = static_cast<double>(resolution.height) / picture.height;
  ImageSize size = resolution;
  if (by_width < by_height) {
    size.height = std::min(static_cast<int>(std::ceil(picture.height * by_width)), size.height);
  } else {
    size.width = std::min(static_cast<int>(std::ceil(picture.width * by_height)), size.width);
  }
  return size;
}

std::vector<ImageSize> usual_resolutions() {
  std::vector<ImageSize> sizes;
  for (int rows = 1; rows <= kUsualMost; ++rows) {
    for (int columns = 1; columns <= kUsualMost; ++columns)
      sizes.push_back({.width = columns * kUsualTile, .height = rows * kUsualTile});
  }
  return sizes;
}

Result<std::vector<ImageSize>> read_resolutions(const nlohmann::json& list, int tile,
                                                const std::string& place) {
  const auto bad = [&](const std::string& what) {
    return make_error(ErrorCode::kCorruption,
                      place + " " + what + "; expected 1 to " + std::to_string(kMostResolutions) +
                          " pairs [height, width], multiples of " + std::to_string(tile) +
                          " pixels up to " + std::to_string(kMostTilesPerSide * tile) +
                          ", of at most " + std::to_string(kMostPixels) + " pixels together");
  };
  if (!list.is_array() || list.empty() || list.size() > kMostResolutions)
    return bad("is no such list");
  const auto fits = [&](const nlohmann::json& side) {
    if (!side.is_number_integer()) return false;
    const auto pixels = side.get<std::int64_t>();
    return pixels >= tile && pixels <= kMostTilesPerSide * tile && pixels % tile == 0;
  };
  std::vector<ImageSize> sizes;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const nlohmann::json& pair = list[i];
    if (!pair.is_array() || pair.size() != 2 || !fits(pair[0]) || !fits(pair[1]) ||
        pair[0].get<std::int64_t>() * pair[1].get<std::int64_t>() > kMostPixels)
      return bad("has a wrong entry " + std::to_string(i));
    sizes.push_back({.width = pair[1].get<int>(), .height = pair[0].get<int>()});
  }
  return sizes;
}

Result<int> read_most_tiles(std::string_view aspect_ratio, const std::string& place) {
  constexpr std::string_view kPrefix = "anyres_max_";
  int most = 0;
  if (aspect_ratio.starts_with(kPrefix)) {
    const std::string_view digits = aspect_ratio.substr(kPrefix.size());
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), most);
    if (error == std::errc{} && end == digits.data() + digits.size() && most >= 1 &&
        most <= kMostTiles)
      return most;
  }
  return make_error(ErrorCode::kUnsupported,
                    place + " is \"" + std::string(aspect_ratio.substr(0, 80)) +
                        "\"; known is anyres_max_N, N from 1 to " + std::to_string(kMostTiles));
}

}  // namespace evalcar::vision
